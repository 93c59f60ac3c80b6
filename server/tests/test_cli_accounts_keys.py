"""`petstore accounts` and `petstore keys`: what operators see and what they get (D9–D12)."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import Environment, digest, is_well_formed
from petstore_server.domain.windows import Count
from petstore_server.ports import Usage
from support.command_line import CommandLine
from support.open_stores import opened


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "store.db")


@pytest.fixture
def acme(cli: CommandLine) -> CommandLine:
    cli.must("accounts", "create", "acme", "--plan", "free")
    return cli


def create_key(cli: CommandLine, *options: str, **settings: str) -> dict[str, Any]:
    made: dict[str, Any] = cli.must("keys", "create", "acme", "--json", *options, **settings).json()
    return made


def save(cli: CommandLine, usage: dict[int, Usage], bans: list[Ban]) -> None:
    async def run() -> None:
        async with opened(cli.store) as store:
            await store.usage.save(usage, bans)

    asyncio.run(run())


def test_a_missing_store_is_made_by_a_command_that_writes_and_told_by_its_path(cli: CommandLine) -> None:
    done = cli.must("accounts", "create", "acme", "--plan", "pro", "--json")
    assert f"Created a new store at {cli.store}.\n" == done.err
    fields = done.json()
    assert ("acme", "pro", 300, 10_000, "active") == (
        fields["name"],
        fields["plan"],
        fields["perMinute"],
        fields["perDay"],
        fields["state"],
    )


def test_a_missing_store_is_not_made_by_a_command_that_reads(cli: CommandLine) -> None:
    done = cli("accounts", "list")
    assert (1, "") == (done.code, done.out)
    assert str(cli.store) in done.err
    assert not cli.store.exists()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--plan", "enterprise", "--per-minute", "5", "--per-day", "50"], 0),
        (["--plan", "enterprise"], 2),
        (["--plan", "enterprise", "--per-minute", "50", "--per-day", "5"], 2),
        (["--plan", "free", "--per-minute", "5"], 2),
        (["--plan", "gold"], 2),
        ([], 2),
    ],
)
def test_a_plan_takes_numbers_of_its_own_only_where_it_has_none(
    cli: CommandLine, options: list[str], code: int
) -> None:
    assert code == cli("accounts", "create", "globex", *options).code


def test_accounts_are_listed_and_changed(acme: CommandLine) -> None:
    acme.must("accounts", "set-plan", "acme", "business")
    assert "suspended" == acme.must("accounts", "suspend", "acme", "--json").json()["state"]
    (listed,) = acme.must("accounts", "list", "--json").json()
    assert ("business", 100_000, "suspended") == (listed["plan"], listed["perDay"], listed["state"])
    assert "active" == acme.must("accounts", "resume", "acme", "--json").json()["state"]
    table = acme.must("accounts", "list").out.splitlines()
    assert "NAME  PLAN      PER MINUTE  PER DAY  STATE   CREATED" == table[0]
    assert table[1].startswith("acme  business  1000        100000   active  20")


def test_an_account_of_the_same_name_is_a_conflict_and_an_unknown_one_not_found(acme: CommandLine) -> None:
    again = acme("accounts", "create", "acme", "--plan", "free", "--json")
    assert (6, "account_exists") == (again.code, again.error()["code"])
    unknown = acme("accounts", "show", "nobody", "--json")
    assert (5, "account_not_found") == (unknown.code, unknown.error()["code"])
    assert 2 == acme("accounts", "create", "-- no name", "--plan", "free").code


def test_an_account_shows_what_its_windows_have_used(acme: CommandLine) -> None:
    key = create_key(acme)
    now = int(time.time())
    save(acme, {1: Usage(Count(now - 10, 7), Count(now - 90_000, 900))}, [Ban(key["id"], now, now + 600, 2)])
    shown = acme.must("accounts", "show", "acme", "--json").json()
    minute, day = shown["windows"]
    assert ("minute", 7, 60, 53) == (minute["window"], minute["used"], minute["limit"], minute["remaining"])
    assert minute["reset"].endswith("Z")
    assert {"window": "day", "used": 0, "limit": 1000, "remaining": 1000, "reset": None} == day  # ended by now
    assert 2 == shown["keys"][0]["ban"]["level"]
    page = acme.must("accounts", "show", "acme").out
    assert shown["keys"][0]["ban"]["until"] in page
    assert "minute  7     60     53" in page


def test_a_new_key_is_the_only_line_of_stdout(acme: CommandLine) -> None:
    done = acme.must("keys", "create", "acme", "--note", "warehouse")
    (key,) = done.out.splitlines()
    assert is_well_formed(key)
    assert key.startswith("pso_live_")
    assert key not in done.err


def test_a_key_is_stored_by_its_digest_and_shown_nowhere_again(acme: CommandLine) -> None:
    made = create_key(acme, "--note", "warehouse")
    secrets = (made["key"], digest(made["key"]).hex(), str(digest(made["key"])))
    shown = [
        acme.must("keys", "list", "--json").out,
        acme.must("keys", "show", made["id"]).out,
        acme.must("accounts", "show", "acme", "--json").out,
        acme.must("audit", "--json").out,
        acme.must("doctor").out,
    ]
    for text in shown:
        assert all(secret not in text for secret in secrets)
    assert made["key"].encode() not in cli_bytes(acme)

    async def principal() -> Any:
        async with opened(acme.store) as store:
            return await store.keys.principal(digest(made["key"]), Environment.PRODUCTION, time.time())

    assert made["id"] == asyncio.run(principal()).key_id


def cli_bytes(cli: CommandLine) -> bytes:
    """Everything that the store keeps on disk."""
    return b"".join(file.read_bytes() for file in cli.store.parent.glob(cli.store.name + "*"))


def test_the_environment_decides_the_kind_of_a_key(acme: CommandLine) -> None:
    made = create_key(acme, PETSTORE_ENVIRONMENT="staging")
    assert made["key"].startswith("pso_test_")
    assert "staging" == made["environment"]


def test_an_experimental_scope_is_granted_by_name_only(acme: CommandLine) -> None:
    assert ["orders:cancel", "orders:read", "pets:read"] == sorted(create_key(acme)["scopes"])
    assert ["orders:write"] == create_key(acme, "--scope", "orders:write")["scopes"]


def test_a_key_may_be_narrowed_and_end(acme: CommandLine) -> None:
    made = create_key(acme, "--scope", "orders:read", "--scope", "pets:read", "--expires", "90d")
    assert ["orders:read", "pets:read"] == made["scopes"]
    assert "expiring" == made["state"]
    assert 2 == acme("keys", "create", "acme", "--scope", "orders:ship").code
    for past in ("2020-01-01T00:00:00Z", "yesterday"):
        done = acme("keys", "create", "acme", "--expires", past)
        assert (2, "") == (done.code, done.out)
    assert 5 == acme("keys", "create", "nobody").code


def test_a_rotated_key_is_followed_by_a_new_one_with_the_same_rights(acme: CommandLine) -> None:
    old = create_key(acme, "--scope", "orders:read", "--note", "warehouse")
    done = acme.must("keys", "rotate", old["id"], "--grace", "1h")
    (key,) = done.out.splitlines()
    assert is_well_formed(key)
    assert f"The old key {old['id']} expires at" in done.err
    before, after = acme.must("keys", "list", "acme", "--json").json()
    assert ("expiring", "active", old["id"]) == (before["state"], after["state"], after["rotatedFrom"])
    assert (["orders:read"], "warehouse") == (after["scopes"], after["note"])
    assert 5 == acme("keys", "rotate", "key_none").code


def test_no_grace_ends_the_old_key_at_once(acme: CommandLine) -> None:
    old = create_key(acme)
    acme.must("keys", "rotate", old["id"], "--grace", "0", "--json")
    assert "expired" == acme.must("keys", "show", old["id"], "--json").json()["state"]
    assert 2 == acme("keys", "rotate", old["id"], "--grace", "soon").code


def test_a_revoked_key_stays_revoked_and_cannot_be_rotated(acme: CommandLine) -> None:
    key = create_key(acme)
    assert "revoked" == acme.must("keys", "revoke", key["id"], "--json").json()["state"]
    done = acme("keys", "rotate", key["id"], "--json")
    assert (6, "key_not_usable") == (done.code, done.error()["code"])


def test_a_ban_is_listed_and_lifted(acme: CommandLine) -> None:
    banned, _free = create_key(acme), create_key(acme)
    now = int(time.time())
    save(acme, {}, [Ban(banned["id"], now, now + 600, 1)])
    (listed,) = acme.must("keys", "list", "--banned", "--json").json()
    assert banned["id"] == listed["id"]
    assert None is acme.must("keys", "unban", banned["id"], "--json").json()["ban"]
    assert [] == acme.must("keys", "list", "--banned", "--json").json()
    again = acme("keys", "unban", banned["id"], "--json")
    assert (6, "key_not_banned") == (again.code, again.error()["code"])


def test_every_change_is_in_the_audit_log_with_its_operator(acme: CommandLine) -> None:
    key = create_key(acme)
    acme.must("keys", "revoke", key["id"])
    entries = acme.must("audit", "--json").json_lines()
    assert ["account.create", "key.create", "key.revoke"] == [entry["action"] for entry in entries]
    assert all(entry["actor"].startswith("operator:") for entry in entries)
    assert all(entry["at"].endswith("Z") for entry in entries)
    assert json.dumps(entries) == json.dumps(acme.must("audit", "--json", "--since", "1h").json_lines())
    assert "" == acme.must("audit", "--json", "--since", "2999-01-01T00:00:00Z").out
    assert 3 == len(acme.must("audit").out.splitlines())
    assert 2 == acme("audit", "--since", "long ago").code


@pytest.mark.parametrize("at", [1e18, -1e18, float("inf")])
def test_listings_never_fail_on_a_time_that_the_store_holds(acme: CommandLine, at: float) -> None:
    key = create_key(acme)
    connection = apsw.Connection(str(acme.store))
    connection.execute("UPDATE keys SET expires_at = ?, created_at = ?", (at, at))
    connection.execute("UPDATE audit SET at = ?", (at,))
    connection.close()
    for command in (
        ["keys", "list"],
        ["keys", "show", key["id"]],
        ["accounts", "show", "acme"],
        ["audit"],
        ["doctor"],
    ):
        for options in ([], ["--json"]):
            done = acme(*command, *options, PETSTORE_PORT="0", PETSTORE_ADMIN_PORT="0")
            assert (0, "") == (done.code, done.err)


def test_a_time_that_is_out_of_range_is_rejected_before_anything_changes(acme: CommandLine) -> None:
    key = create_key(acme)
    before = acme.must("audit", "--json").out
    for command in (
        ["keys", "rotate", key["id"], "--grace", "999999999w"],
        ["keys", "create", "acme", "--expires", "999999999w"],
        ["orders", "ship", "1", "--at", "999999999w"],
        ["audit", "--since", "999999999w"],
    ):
        done = acme(*command)
        assert (2, "") == (done.code, done.out)
        assert "999999999w" in done.err
        assert "longer than 100 years" in done.err
    assert before == acme.must("audit", "--json").out
