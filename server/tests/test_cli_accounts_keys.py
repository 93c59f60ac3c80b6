"""`petstore accounts` and `petstore keys`: what operators see and what they get (D9–D12)."""

import asyncio
import json
import re
import time
from typing import Any

import pytest

from petstore_server.domain import keys
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import Environment, digest, is_well_formed, new_key
from petstore_server.domain.timestamps import canonical_timestamp
from petstore_server.domain.usage import NO_ACTIVITY, Activity, Usage
from petstore_server.domain.windows import Count
from petstore_server.engines.sqlite import lock_for_serving
from testing.cli import CommandLine
from testing.stores import opened

OTHER_KEY = new_key(Environment.PRODUCTION, lambda below: below - 1)


def create_key(cli: CommandLine, *options: str, **settings: str) -> dict[str, Any]:
    made: dict[str, Any] = cli.must("keys", "create", "acme", "--json", *options, **settings).json()
    return made


def save(cli: CommandLine, usage: dict[int, Usage], bans: list[Ban], activity: Activity = NO_ACTIVITY) -> None:
    async def run() -> None:
        async with opened(cli.store) as store:
            await store.usage.save(usage, bans, activity)

    asyncio.run(run())


def test_only_an_enterprise_account_has_limits_of_its_own(cli: CommandLine) -> None:
    limits = ("--per-minute", "5", "--per-day", "50")
    assert 0 == cli("accounts", "create", "globex", "--plan", "enterprise", *limits).code
    for options in (("enterprise", "--per-minute", "50", "--per-day", "5"), ("free", "--per-minute", "5"), ("gold",)):
        assert 2 == cli("accounts", "create", "acme", "--plan", *options).code
    for command in (["create", "acme", "--plan"], ["set-plan", "globex"]):
        cli("accounts", *command, "enterprise", "--per-day", "50").fails(2, "Add --per-minute N and --per-day N.")


def test_accounts_are_listed_and_changed(acme: CommandLine) -> None:
    created = acme.must("accounts", "list", "--json").json()[0]
    limits = {"perMinute": 60, "perDay": 1000}
    assert {"name": "acme", "plan": "free", "state": "active", **limits}.items() <= created.items()
    acme.must("accounts", "set-plan", "acme", "business")
    assert "suspended" == acme.must("accounts", "suspend", "acme", "--json").json()["state"]
    (listed,) = acme.must("accounts", "list", "--json").json()
    assert {"plan": "business", "perDay": 100_000, "state": "suspended"}.items() <= listed.items()
    assert "active" == acme.must("accounts", "resume", "acme", "--json").json()["state"]
    table = acme.must("accounts", "list").out.splitlines()
    assert "NAME  PLAN      PER MINUTE  PER DAY  ORDERS  STATE   CREATED" == table[0]
    assert table[1].startswith("acme  business  1000        100000   all     active  20")


def test_an_account_sees_all_orders_or_its_own_and_each_change_is_audited(cli: CommandLine) -> None:
    created = cli.must("accounts", "create", "O'Hara Pets", "--plan", "free")
    command = """petstore accounts edit 'O'"'"'Hara Pets' --orders own"""
    assert (
        f"O'Hara Pets sees all orders and may cancel those of other accounts; `{command}` restricts it to its own.\n"
        == created.err
    )
    assert "" == cli.must("accounts", "create", "globex", "--plan", "free", "--orders", "own").err
    assert "" == cli.must("accounts", "create", "initech", "--plan", "free", "--orders", "all").err
    assert "" == cli.must("accounts", "create", "zoo", "--plan", "free", "--json").err
    listed = cli.must("accounts", "list", "--json").json()
    assert {"O'Hara Pets": "all", "globex": "own", "initech": "all", "zoo": "all"} == {
        account["name"]: account["orders"] for account in listed
    }
    edited = cli.must("accounts", "edit", "zoo", "--orders", "own", "--note", "seller", "--json").json()
    assert ("own", "seller") == (edited["orders"], edited["note"])
    assert "orders:        own\n" in cli.must("accounts", "show", "zoo").out
    assert "all" == cli.must("accounts", "edit", "zoo", "--orders", "all", "--json").json()["orders"]
    assert 2 == cli("accounts", "edit", "zoo", "--orders", "mine").code
    assert "Give --contact, --note or --orders." in cli("accounts", "edit", "zoo").err
    changes = cli.must("audit", "--account", "zoo", "--action", "account.edit", "--json").json_lines()
    assert [
        ({"orders": "all", "note": ""}, {"orders": "own", "note": "seller"}),
        ({"orders": "own"}, {"orders": "all"}),
    ] == [(entry["before"], entry["after"]) for entry in changes]
    cli.must("accounts", "close", "zoo", "--yes")
    assert 6 == cli("accounts", "edit", "zoo", "--orders", "own").code


def test_an_account_of_the_same_name_is_a_conflict_and_an_unknown_one_not_found(acme: CommandLine) -> None:
    acme("accounts", "create", "acme", "--plan", "free", "--json").fails(6, "account_exists")
    acme("accounts", "show", "missing", "--json").fails(5, "account_not_found")
    assert 2 == acme("accounts", "create", "-- invalid", "--plan", "free").code


def test_an_account_shows_what_its_windows_have_used(acme: CommandLine) -> None:
    key = create_key(acme)
    now = int(time.time())
    save(acme, {1: Usage(Count(now - 10, 7), Count(now - 90_000, 900))}, [Ban(key["id"], now, now + 600, 2)])
    shown = acme.must("accounts", "show", "acme", "--json").json()
    minute, day = shown["windows"]
    assert minute.pop("reset").endswith("Z")
    assert {"name": "minute", "used": 7, "limit": 60, "remaining": 53} == minute
    assert {"name": "day", "used": 0, "limit": 1000, "remaining": 1000, "reset": None} == day  # it has ended
    assert 2 == shown["keys"][0]["ban"]["level"]
    page = acme.must("accounts", "show", "acme").out
    assert shown["keys"][0]["ban"]["until"] in page
    assert "minute  7     60     53" in page


def test_a_new_key_is_the_only_line_of_stdout_and_then_stored_by_its_digest_and_shown_nowhere(
    acme: CommandLine,
) -> None:
    done = acme.must("keys", "create", "acme", "--note", "warehouse")
    (key,) = done.out.splitlines()
    assert is_well_formed(key)
    secrets = (key, digest(key).hex(), str(digest(key)))
    [listed] = acme.must("keys", "list", "--json").json()
    shown = [
        done.err,
        str(listed),
        acme.must("keys", "show", listed["id"]).out,
        acme.must("accounts", "show", "acme", "--json").out,
        acme.must("audit", "--json").out,
        acme.must("doctor", PETSTORE_PORT="0", PETSTORE_ADMIN_PORT="0").out,
    ]
    for text in shown:
        assert all(secret not in text for secret in secrets)
    stored = b"".join(file.read_bytes() for file in acme.store.parent.iterdir())
    assert digest(key) in stored
    assert key.encode() not in stored


def test_the_environment_decides_the_kind_of_a_key_and_an_experimental_scope_needs_its_name(acme: CommandLine) -> None:
    made = create_key(acme, PETSTORE_ENVIRONMENT="staging")
    assert ("pso_test_", "staging") == (made["key"][:9], made["environment"])
    assert ["orders:cancel", "orders:read", "pets:read"] == sorted(made["scopes"])
    assert ["orders:write"] == create_key(acme, "--scope", "orders:write")["scopes"]


def test_a_key_can_have_fewer_scopes_and_an_end(acme: CommandLine) -> None:
    made = create_key(acme, "--scope", "orders:read", "--scope", "pets:read", "--expires", "90d")
    assert ["orders:read", "pets:read"] == made["scopes"]
    assert "expiring" == made["state"]
    for options in (("--scope", "orders:ship"), ("--expires", "2020-01-01T00:00:00Z"), ("--expires", "yesterday")):
        acme("keys", "create", "acme", *options).fails(2)
    assert 5 == acme("keys", "create", "missing").code


def test_rotating_creates_a_successor_with_the_same_scopes_and_note(acme: CommandLine) -> None:
    old = create_key(acme, "--scope", "orders:read", "--note", "warehouse")
    done = acme.must("keys", "rotate", old["id"], "--grace", "1h")
    (key,) = done.out.splitlines()
    assert is_well_formed(key)
    assert f"The old key {old['id']} expires at" in done.err
    before, after = acme.must("keys", "list", "acme", "--json").json()
    assert "expiring" == before["state"]
    successor = {"state": "active", "rotatedFrom": old["id"], "scopes": ["orders:read"], "note": "warehouse"}
    assert successor.items() <= after.items()
    acme("keys", "rotate", old["id"]).fails(6, f"rotated to {after['id']}; rotate that one.\n")
    acme.must("keys", "rotate", after["id"], "--grace", "0", "--json")
    assert "expired" == acme.must("keys", "show", after["id"], "--json").json()["state"]
    assert 2 == acme("keys", "rotate", old["id"], "--grace", "soon").code
    assert 5 == acme("keys", "rotate", "key_none").code


def test_a_ban_is_listed_and_lifted(acme: CommandLine) -> None:
    banned, _free = create_key(acme), create_key(acme)
    now = int(time.time())
    save(acme, {}, [Ban(banned["id"], now, now + 600, 1)])
    (listed,) = acme.must("keys", "list", "--banned", "--json").json()
    assert banned["id"] == listed["id"]
    assert None is acme.must("keys", "unban", banned["id"], "--json").json()["ban"]
    assert [] == acme.must("keys", "list", "--banned", "--json").json()
    acme("keys", "unban", banned["id"], "--json").fails(6, "key_not_banned")


@pytest.mark.parametrize("at", [1e18, -1e18, float("inf")])
def test_listings_never_fail_on_a_time_that_the_store_holds(acme: CommandLine, at: float) -> None:
    key = create_key(acme)
    acme.execute("UPDATE keys SET expires_at = ?, created_at = ?", at, at)
    acme.execute("UPDATE audit SET at = ?", at)
    for command in ("keys list", f"keys show {key['id']}", "accounts show acme", "audit", "doctor"):
        for options in ([], ["--json"]):
            done = acme(*command.split(), *options, PETSTORE_PORT="0", PETSTORE_ADMIN_PORT="0")
            assert (0, "") == (done.code, done.err)


def test_a_time_that_is_out_of_range_is_rejected_before_anything_changes(acme: CommandLine) -> None:
    key = create_key(acme)
    before = acme.must("audit", "--json").out
    for command in (
        f"keys rotate {key['id']} --grace",
        "keys create acme --expires",
        "orders ship 1 --at",
        "audit --since",
    ):
        acme(*command.split(), "999999999w").fails(2, "999999999w", "longer than 100 years")
    assert before == acme.must("audit", "--json").out


def test_keys_of_a_suspended_account_are_shown_as_suspended(acme: CommandLine) -> None:
    works, revoked = create_key(acme), create_key(acme)
    acme.must("keys", "revoke", revoked["id"])
    assert "suspended" not in acme.must("keys", "create", "acme").err
    acme.must("accounts", "suspend", "acme")
    assert ["suspended", "revoked", "suspended"] == [key["state"] for key in acme.must("keys", "list", "--json").json()]
    assert "suspended" == acme.must("keys", "show", works["id"], "--json").json()["state"]
    shown = acme.must("accounts", "show", "acme", "--json").json()
    assert ["suspended", "revoked", "suspended"] == [key["state"] for key in shown["keys"]]
    created = acme.must("keys", "create", "acme").err
    assert "The account acme is suspended: its keys are invalid until `petstore accounts resume acme`." in created
    acme.must("accounts", "resume", "acme")
    assert "active" == acme.must("keys", "show", works["id"], "--json").json()["state"]


def test_usage_that_is_counted_in_redis_is_not_read_from_the_store(acme: CommandLine) -> None:
    now = int(time.time())
    save(acme, {1: Usage(Count(now - 10, 7), Count(now - 10, 7))}, [])
    with lock_for_serving(acme.store, shared=True):  # as a server with Redis does
        assert None is acme.must("accounts", "show", "acme", "--json").json()["windows"]
        assert "Set PETSTORE_REDIS_URL as for the server." in acme.must("accounts", "show", "acme").out
    with lock_for_serving(acme.store, shared=False):  # as a server without it does
        assert 7 == acme.must("accounts", "show", "acme", "--json").json()["windows"][0]["used"]


def test_the_audit_log_shows_camel_case_and_rfc_3339(acme: CommandLine) -> None:
    key = create_key(acme, "--expires", "2099-01-01")
    now = int(time.time())
    save(acme, {}, [Ban(key["id"], now, now + 600, 1)])
    acme.must("keys", "unban", key["id"])
    acme.must("accounts", "suspend", "acme")
    text = acme.must("audit", "--json").out
    assert not re.search(r'"[a-z]+_[a-z_]+":|\d{9,}\.\d', text)
    after = {entry["action"]: entry["after"] for entry in map(json.loads, text.splitlines())}
    assert "2099-01-01T00:00:00Z" == after["key.create"]["expiresAt"]
    assert canonical_timestamp(after["account.suspend"]["suspendedAt"])
    assert f"{key['id']}" in acme.must("audit").out


def test_a_note_is_one_line_of_text(acme: CommandLine) -> None:
    for note in ("two\nlines", "\x1b[2J", "x" * 201, "\u202etxt"):
        acme("keys", "create", "acme", "--note", note).fails(2, "A note is one line of at most 200 characters")
    for note in ("x" * 200, "東京 “warehouse”"):
        assert note == create_key(acme, "--note", note)["note"]


NO_REDIS = {"PETSTORE_REDIS_URL": "redis://me:secret@127.0.0.1:1/0"}
NO_USAGE = (
    "The usage cannot be read from Redis at redis://127.0.0.1:1/0 (Connection refused). "
    "Check PETSTORE_REDIS_URL, and that Redis runs."
)


def test_usage_in_a_redis_that_is_down_is_left_out_and_names_it_without_the_password(acme: CommandLine) -> None:
    done = acme("usage", "top", "--by", "share", "--json", **NO_REDIS)
    done.fails(1)
    assert {"code": "service_unavailable", "message": NO_USAGE} == done.error()
    key = create_key(acme)
    shown = acme.must("accounts", "show", "acme", "--json", **NO_REDIS).json()
    assert {"windows": None, "usageProblem": NO_USAGE}.items() <= shown.items()
    assert key["id"] == shown["keys"][0]["id"]
    page = acme.must("accounts", "show", "acme", **NO_REDIS).out
    assert NO_USAGE in " ".join(page.split())
    assert key["id"] in page
    assert None is acme.must("accounts", "show", "acme", "--json").json()["usageProblem"]


def test_the_last_use_of_a_key_is_shown_as_an_hour(acme: CommandLine) -> None:
    key_id, hour = create_key(acme)["id"], 1_795_345_200
    save(acme, {}, [], Activity({}, {}, {key_id: hour}))
    assert "2026-11-22T11:00:00Z" == acme.must("keys", "show", key_id, "--json").json()["lastUsedAt"]
    assert "last used at: 2026-11-22T11:00Z" in " ".join(acme.must("keys", "show", key_id).out.split())
    listed = acme.must("keys", "list").out
    assert "  LAST USED (HOUR)  " in listed
    assert "  2026-11-22T11:00Z  " in listed


def test_a_key_is_found_by_its_text_on_stdin_without_repeating_it(acme: CommandLine) -> None:
    made = create_key(acme, "--note", "warehouse")
    for stdin in (made["key"], made["key"] + "\n", f"  {made['key']}\r\nmore\n"):
        done = acme.must("keys", "find", stdin=stdin)
        assert made["id"] in done.out
        assert made["key"][9:] not in done.out + done.err
    assert made["id"] == acme.must("keys", "find", "--json", stdin=made["key"]).json()["id"]
    mistyped = made["key"][:-1] + ("x" if made["key"][-1] != "x" else "y")
    for stdin, code in ((mistyped, 2), ("", 2), ("\xff" * 5000, 2), (OTHER_KEY, 5)):
        done = acme("keys", "find", stdin=stdin)
        assert (code, "") == (done.code, done.out)
        assert "pso_live_" not in done.err


def test_a_rotation_prints_both_ends_and_can_set_that_of_the_new_key(acme: CommandLine) -> None:
    old = create_key(acme, "--expires", "1h")
    done = acme.must("keys", "rotate", old["id"], "--grace", "24h")
    before, after = acme.must("keys", "list", "--json").json()
    assert old["expiresAt"] == before["expiresAt"] == after["expiresAt"]
    assert f"The old key {old['id']} expires at {old['expiresAt']}." in done.err
    assert f"The new key expires at {old['expiresAt']}" in done.err
    assert f"petstore keys rotate {after['id']} --expires 90d" in done.err
    acme.must("keys", "rotate", after["id"], "--expires", "2099-01-01")
    assert "2099-01-01T00:00:00Z" == acme.must("keys", "list", "--json").json()[-1]["expiresAt"]
    assert 2 == acme("keys", "rotate", after["id"], "--expires", "2020-01-01").code


def test_the_remedy_that_doctor_gives_for_an_expiring_key_works(acme: CommandLine) -> None:
    old = create_key(acme, "--expires", "1h")

    def remedies() -> list[str]:
        found = acme("doctor", "--json", PETSTORE_PORT="0", PETSTORE_ADMIN_PORT="0").json()
        return [result["remedy"] for result in found if result["check"] == "keys"]

    (remedy,) = remedies()
    command = f"keys rotate {old['id']} --expires 90d"
    assert f"Replace it by a new one. petstore {command}" == remedy
    acme.must(*command.split())
    assert [] == remedies()


def test_a_closed_account_keeps_its_history_and_cannot_be_reopened(acme: CommandLine) -> None:
    create_key(acme)
    create_key(acme)
    acme("accounts", "close", "acme").fails(2, "--yes")
    assert "active" == acme.must("accounts", "show", "acme", "--json").json()["state"]
    done = acme.must("accounts", "close", "acme", "--yes")
    assert "Revoked 2 keys." in done.err
    shown = acme.must("accounts", "show", "acme", "--json").json()
    assert ("closed", ["revoked", "revoked"]) == (shown["state"], [key["state"] for key in shown["keys"]])
    for command in ("accounts resume acme", "accounts set-plan acme pro", "keys create acme"):
        acme(*command.split(), "--json").fails(6, "account_closed")
    assert 6 == acme("accounts", "create", "acme", "--plan", "free").code
    assert "Revoked 0 keys." in acme.must("accounts", "close", "acme", "--yes").err
    actions = [entry["action"] for entry in acme.must("audit", "--account", "acme", "--json").json_lines()]
    assert ["account.create", "key.create", "key.create", "account.close", "key.revoke", "key.revoke"] == actions


def test_an_account_has_a_contact_and_a_note(acme: CommandLine) -> None:
    acme.must("accounts", "create", "globex", "--plan", "pro", "--contact", "ops@globex.example", "--note", "new")
    acme.must("accounts", "edit", "globex", "--note", "renews in March")
    shown = acme.must("accounts", "show", "globex", "--json").json()
    assert ("ops@globex.example", "renews in March") == (shown["contact"], shown["note"])
    assert "renews in March" in acme.must("accounts", "show", "globex").out
    assert "" == acme.must("accounts", "edit", "globex", "--contact", "", "--json").json()["contact"]
    assert 2 == acme("accounts", "edit", "globex").code
    assert 2 == acme("accounts", "edit", "globex", "--note", "two\nlines").code
    assert "The contact holds an API key" in acme("accounts", "edit", "globex", "--contact", "pso_live_x").err
    assert 5 == acme("accounts", "edit", "missing", "--note", "x").code


def test_an_account_with_all_its_keys_gets_no_other_but_a_rotated_one(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.must("accounts", "create", "acme", "--plan", "free")
    monkeypatch.setattr(keys, "MAX_KEYS", 2)
    first, second = create_key(cli)["id"], create_key(cli)["id"]
    done = cli("keys", "create", "acme", "--json")
    assert (6, "too_many_keys") == (done.code, done.error()["code"])
    assert (
        "The account 'acme' has 2 keys that have not ended, and 2 are allowed; revoke those that are not used. "
        "`petstore keys list ACCOUNT` shows when each was last used."
    ) == done.error()["message"]
    cli.must("keys", "rotate", first)
    assert 6 == cli("keys", "create", "acme").code
    cli.must("keys", "revoke", second)
    create_key(cli)
