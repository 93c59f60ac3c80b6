"""`petstore accounts` and `petstore keys`: what operators see and what they get (D9–D12)."""

import time
from typing import Any

import pytest

from petstore_server.domain.keys import Environment, digest, is_well_formed, new_key
from petstore_server.engines.sqlite import lock_for_serving
from testing.cli import CommandLine

OTHER_KEY = new_key(Environment.PRODUCTION, lambda below: below - 1)


def create_key(cli: CommandLine, *options: str, **settings: str) -> dict[str, Any]:
    made: dict[str, Any] = cli.must("keys", "create", "acme", "--json", *options, **settings).json()
    return made


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


@pytest.mark.parametrize("at", [1e18, -1e18, float("inf")])
def test_listings_never_fail_on_a_time_that_the_store_holds(acme: CommandLine, at: float) -> None:
    key = create_key(acme)
    acme.execute("UPDATE keys SET expires_at = ?, created_at = ?", at, at)
    acme.execute("UPDATE audit SET at = ?", at)
    for command in ("keys list", f"keys show {key['id']}", "accounts show acme", "audit", "doctor"):
        for options in ([], ["--json"]):
            done = acme(*command.split(), *options, PETSTORE_PORT="0", PETSTORE_ADMIN_PORT="0")
            assert (0, "") == (done.code, done.err)


def test_usage_that_is_counted_in_redis_is_not_read_from_the_store(acme: CommandLine) -> None:
    now = int(time.time())
    acme.execute("INSERT INTO usage VALUES (1, ?, 7, ?, 7)", now - 10, now - 10)
    with lock_for_serving(acme.store, shared=True):  # as a server with Redis does
        assert None is acme.must("accounts", "show", "acme", "--json").json()["windows"]
        assert "Set PETSTORE_REDIS_URL as for the server." in acme.must("accounts", "show", "acme").out
    with lock_for_serving(acme.store, shared=False):  # as a server without it does
        assert 7 == acme.must("accounts", "show", "acme", "--json").json()["windows"][0]["used"]


def test_a_command_that_is_advised_has_the_name_of_the_account_in_quotes(cli: CommandLine) -> None:
    cli.must("accounts", "create", "Zoo & Co", "--plan", "free")
    assert "create one with `petstore keys create 'Zoo & Co'`." in cli.must("accounts", "show", "Zoo & Co").out
    cli.must("accounts", "suspend", "Zoo & Co")
    assert "until `petstore accounts resume 'Zoo & Co'`." in cli.must("keys", "create", "Zoo & Co").err


def test_a_key_is_found_by_its_text_on_stdin_without_repeating_it(acme: CommandLine) -> None:
    made = create_key(acme, "--note", "warehouse")
    for stdin in (made["key"], made["key"] + "\n", f"  {made['key']}\r\nmore\n"):
        done = acme.must("keys", "find", stdin=stdin)
        assert made["id"] in done.out
        assert made["key"][9:] not in done.out + done.err
    assert made["id"] == acme.must("keys", "find", "--json", stdin=made["key"]).json()["id"]
    mistyped = made["key"][:-1] + ("x" if made["key"][-1] != "x" else "y")
    for stdin, code in ((mistyped, 2), ("", 2), ("\xff" * 5000, 2), (b"\xff", 2), (OTHER_KEY, 5)):
        done = acme("keys", "find", stdin=stdin)
        assert (code, "") == (done.code, done.out)
        assert "pso_live_" not in done.err
