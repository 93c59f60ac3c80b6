"""`petstore db`, `doctor` and `openapi`."""

import asyncio
import errno
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import SimpleNamespace
from unittest.mock import Mock, patch

import apsw
import pytest

from petstore_server.cli import db
from petstore_server.domain import errors
from petstore_server.domain.orders import MAX_ASSIGNED_ID
from petstore_server.domain.timestamps import DAY
from petstore_server.engines import sqlite
from petstore_server.engines.sqlite import connections, maintenance
from petstore_server.operations import health_machine
from petstore_server.operations.health import CheckResult, check_backups, check_clock
from petstore_server.operations.health_machine import LARGE_LOG, check_disk
from petstore_server.runtime import health
from petstore_server.runtime.health import examine
from petstore_server.runtime.maintenance import check
from petstore_server.settings import SettingsError, read_settings
from testing.cli import CommandLine
from testing.documents import parse_yaml
from testing.engines import PostgresEngine


@pytest.fixture
def cli(cli: CommandLine) -> CommandLine:
    cli.must("orders", "import", "-", stdin='{"id":1}\n')
    return cli


MIB = 1 << 20
NO_PORTS = {"PETSTORE_PORT": "0", "PETSTORE_ADMIN_PORT": "0"}


def results(cli: CommandLine, **settings: str) -> dict[str, tuple[str, str]]:
    """Level and message of each check of `doctor`; of several with one name the worst."""
    done = cli("doctor", "--json", **{**NO_PORTS, **settings})
    found = done.json()
    assert (1 if any(each["level"] == "fail" for each in found) else 0) == done.code
    assert all(each["remedy"] for each in found if each["level"] != "ok")
    worst = sorted(found, key=lambda each: ["ok", "warn", "fail"].index(each["level"]))
    return {each["check"]: (each["level"], each["message"]) for each in worst}


def test_migrating_creates_a_missing_store_and_then_changes_nothing(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "new.db", make=False)
    first = cli.must("db", "migrate", "--json")
    assert {"before": 0, "after": sqlite.opening.SCHEMA.latest} == first.json()
    assert str(cli.store) in first.err
    assert "nothing was changed" in cli.must("db", "migrate").out
    cli.store.unlink()
    assert "The new store has schema version 2.\n" == cli.must("db", "migrate").out


def test_a_sound_store_passes_the_check_and_a_damaged_one_fails(cli: CommandLine) -> None:
    assert {"sound": True, "problems": [], "indexesVerified": True} == cli.must("db", "check", "--json").json()
    cli.execute("UPDATE orders SET record = '{\"id\":2}'")
    done = cli("db", "check")
    assert 1 == done.code
    assert "Order 1" in done.out
    assert "petstore: The store is not sound: 1 problem.\n" == done.err
    assert "fail" == results(cli)["integrity"][0]


def test_a_backup_can_be_restored(cli: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    done = cli.must("db", "backup", str(target), "--json", "--as", "ann").json()
    assert {"backup": str(target), "removed": []} == done
    entry = cli.must("audit", "--json").json_lines()[-1]
    assert ("store.backup", "operator:ann", {"file": "backup.db"}) == (entry["action"], entry["actor"], entry["after"])
    cli.must("orders", "cancel", "1")
    done = cli.must("db", "restore", str(target), "--yes", "--json", "--as", "Ann").json()
    assert "pending" == cli.must("orders", "show", "1", "--json").json()["status"]
    assert {"restored": str(cli.store), "from": str(target)} == {key: done[key] for key in ("restored", "from")}
    previous = CommandLine(Path(done["kept"]))
    assert "cancelled" == previous.must("orders", "show", "1", "--json").json()["status"]
    last = cli.must("audit", "--json").json_lines()[-1]
    assert ("store.restore", "operator:Ann") == (last["action"], last["actor"])
    assert 6 == cli("db", "backup", str(target)).code
    assert 2 == cli("db", "restore", str(tmp_path / "missing.db"), "--yes").code


@pytest.mark.parametrize("name", ["store.db", "link.db"])
def test_the_store_itself_is_not_restored(cli: CommandLine, tmp_path: Path, name: str) -> None:
    (tmp_path / "link.db").symlink_to(cli.store)
    cli("db", "restore", str(tmp_path / name), "--yes").fails(
        2, f"{tmp_path / name} is the store itself; give the file of a backup."
    )
    assert [] == list(tmp_path.glob("*before-restore*"))


def test_a_restore_needs_yes_if_it_cannot_ask(cli: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    cli.must("db", "backup", str(target))
    cli.must("orders", "cancel", "1")
    cli("db", "restore", str(target)).fails(2, "--yes")
    assert "cancelled" == cli.must("orders", "show", "1", "--json").json()["status"]
    cli.store.unlink()
    CommandLine(cli.store, make=False).must("db", "restore", str(target))  # replaces nothing
    assert "pending" == cli.must("orders", "show", "1", "--json").json()["status"]


def test_doctor_finds_a_new_store_sound_and_without_partners(cli: CommandLine) -> None:
    found = results(cli)
    checks = ("settings", "store", "disk", "clock", "integrity", "permissions")
    assert {"ok"} == {found[check][0] for check in checks}
    assert ("warn", "No server runs on this store.") == found["server"]
    assert "warn" == found["accounts"][0]
    cli.must("accounts", "create", "acme", "--plan", "free")
    assert "warn" == results(cli)["keys"][0]
    cli.must("keys", "create", "acme", "--expires", "3d")
    found = results(cli)
    assert ("ok", "Accounts: 1 (0 suspended); working keys: 1.") == found["accounts"]
    assert "warn" == found["keys"][0]
    cli.must("accounts", "suspend", "acme")
    assert ("warn", "No account has a key that works.") == results(cli)["keys"]
    cli.must("accounts", "create", "globex", "--plan", "free")
    cli.must("keys", "create", "globex")
    assert ("ok", "Accounts: 2 (1 suspended); working keys: 1.") == results(cli)["accounts"]


def test_doctor_says_how_many_accounts_may_cancel_the_orders_of_others(cli: CommandLine) -> None:
    def found() -> tuple[str, str] | None:
        listed = cli("doctor", "--json", **NO_PORTS).json()
        return next(((each["message"], each["remedy"]) for each in listed if each["check"] == "orders"), None)

    def key(account: str, *scopes: str) -> str:
        options = [word for scope in scopes for word in ("--scope", scope)]
        return str(cli.must("keys", "create", account, *options, "--json").json()["id"])

    def advice(number: int, account: str) -> tuple[str, str]:
        message = f"Accounts that see all orders and may cancel them: {number} of 2."
        remedy = "Restrict each account of a partner to its own orders. petstore accounts edit"
        return message, f"{remedy} {account} --orders own"

    cli.must("accounts", "create", "Zoo & Co", "--plan", "free")
    key("Zoo & Co")
    assert None is found(), "one account only"
    cli.must("accounts", "create", "acme", "--plan", "free")
    reading = key("acme", "orders:read")
    assert advice(1, "'Zoo & Co'") == found()
    cancelling, usual = key("acme", "pets:read", "orders:cancel"), key("acme")
    assert advice(2, "'Zoo & Co'") == found()
    cli.must("accounts", "edit", "Zoo & Co", "--orders", "own")
    assert advice(1, "acme") == found()
    for each in (reading, usual):
        cli.must("keys", "revoke", each)
    assert advice(1, "acme") == found()
    cli.must("keys", "revoke", cancelling)
    assert None is found(), "no key may cancel"
    cli.must("accounts", "edit", "Zoo & Co", "--orders", "all")
    assert advice(1, "'Zoo & Co'") == found()
    own = key("acme", "orders:manage", "orders:cancel")
    assert None is found(), "one account of a partner, and the shop's own"
    cli.must("keys", "revoke", own)
    cli.must("accounts", "close", "acme", "--yes")
    assert None is found(), "one open account"


@pytest.mark.parametrize(
    ("order_id", "level"),
    [
        (MAX_ASSIGNED_ID + 1, None),
        (MAX_ASSIGNED_ID, "fail"),
        (MAX_ASSIGNED_ID - 2**32 + 1, "warn"),
        (MAX_ASSIGNED_ID - 2**32, None),
    ],
)
def test_doctor_reports_when_few_identifiers_are_left_for_new_orders(
    cli: CommandLine, order_id: int, level: str | None
) -> None:
    cli.must("orders", "import", "-", stdin=f'{{"id":{order_id}}}')
    found = results(cli)
    assert (None if "identifiers" not in found else found["identifiers"][0]) == level
    assert ("large identifiers" in found) == (order_id > MAX_ASSIGNED_ID)


MOUNT = "Check that its disk is mounted and that PETSTORE_DATABASE_URL is right."
RESTORE = "Stop all servers, restore the latest sound backup, then start them."
CORRECT = "Correct that, then check again."


@pytest.mark.parametrize(
    ("error", "message", "remedy", "action"),
    [
        (errors.NoStore("None.", "Make it."), "None. Make it.", f"{MOUNT} To create a new store:", "migrate"),
        (errors.StoreOutdated("Old.", "Do it."), "Old. Do it.", "Bring it to this version's schema.", "migrate"),
        (errors.StoreDamaged("Bad.", "Get it."), "Bad. Get it.", RESTORE, "restore"),
        (errors.StoreUnusable("New.", "Update."), "New. Update.", CORRECT, None),
        (errors.ServiceUnavailable("it is locked"), "It is locked.", CORRECT, None),
        (errors.ServiceUnavailable("it is bad", damaged=True), "It is bad.", RESTORE, "restore"),
        (SettingsError("A driver is missing."), "A driver is missing.", CORRECT, None),
    ],
)
def test_doctor_says_what_to_do_about_a_store_that_cannot_be_opened(
    cli: CommandLine, error: Exception, message: str, remedy: str, action: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a server still uses a store that was moved away, the doctor advises nothing that would replace it."""
    monkeypatch.setattr(health, "named_store", Mock(side_effect=error))
    settings = read_settings({"PETSTORE_DATABASE_URL": f"sqlite:///{cli.store}"})
    for server in ("ok", "fail"):
        if server == "fail" and isinstance(error, errors.StoreUnusable):
            message = error.problem
            remedy, action = (MOUNT, None) if isinstance(error, errors.NoStore) else (remedy, action)
        check_server = Mock(return_value=[CheckResult("server", server, "A server runs.")])
        monkeypatch.setattr(health_machine, "check_server", check_server)
        found = asyncio.run(examine(settings, time.time, in_full=False))
        assert ("store", "fail", message, remedy, action, "") in found


@pytest.mark.parametrize(
    ("name", "url", "shown"),
    [
        ("PETSTORE_REDIS_URL", "redis://:secret@127.0.0.1:1/0", "redis://127.0.0.1:1/0"),
        ("PETSTORE_REDIS_URL", "redis://127.0.0.1:1/0?password=secret", "redis://127.0.0.1:1/0"),
        ("PETSTORE_REDIS_URL", "redis://me:sec/ret@127.0.0.1:1/0", ""),
        ("PETSTORE_DATABASE_URL", "postgresql://me:secret@127.0.0.1:1/petstore", "127.0.0.1"),
        ("PETSTORE_DATABASE_URL", "postgresql://127.0.0.1:1/petstore?password=secret", "127.0.0.1"),
        ("PETSTORE_DATABASE_URL", "postgresql://me:se@cret@127.0.0.1:1/petstore", ""),
        ("PETSTORE_BASE_URL", "https://me:secret@example.com/v1", ""),
    ],
)
def test_no_password_of_an_address_is_shown(cli: CommandLine, name: str, url: str, shown: str) -> None:
    assert "fail" in {level for level, _ in results(cli, **{name: url}).values()}
    for command in (["doctor"], ["doctor", "--json"], ["orders", "list"], ["accounts", "show", "acme"]):
        done = cli(*command, **{**NO_PORTS, name: url})
        for part in ("cret", "sec"):
            assert part not in done.out + done.err
        if command[0] == "doctor":
            assert shown in done.out


def test_doctor_reports_invalid_settings(cli: CommandLine) -> None:
    assert "fail" == results(cli, PETSTORE_PORT="many")["settings"][0]
    assert "fail" == results(cli, PETSTORE_WORKERS="2")["redis"][0]
    found = cli("doctor", "--json", PETSTORE_DATABASE_URL="postgresql://x@127.0.0.1:1/db").json()
    [redis] = [each for each in found if each["check"] == "redis"]
    assert "PostgreSQL needs Redis to count limits: set PETSTORE_REDIS_URL=redis://HOST:6379/0." == redis["message"]
    assert "Set PETSTORE_REDIS_URL, for example to redis://127.0.0.1:6379/0" in redis["remedy"]


def test_doctor_reports_a_port_that_is_taken(cli: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for name in NO_PORTS:
            found = cli("doctor", "--json", **NO_PORTS | {name: str(port)}).json()
            [taken_port] = [each for each in found if each["check"] == "ports"]
            assert "fail" == taken_port["level"]
            assert f"on 127.0.0.1:{port}: " in taken_port["message"]
            assert taken_port["remedy"].endswith(f"; else change {name}.")


@contextmanager
def answering(response: bytes) -> Iterator[str]:
    """The port of a program that gives this response to every request."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(10_000)
            self.request.sendall(response)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield str(server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("response", "level", "message"),
    [
        ("garbage\r\n\r\n", "warn", ", but does not answer at http://127.0.0.1:"),
        ('HTTP/1.0 200 -\r\n\r\n{"status":"degraded","reason":"it is"}', "warn", " and is ready (degraded: it is)."),
        ('HTTP/1.0 503 -\r\n\r\n{"status":"no","reason":"it is"}', "fail", " and is not ready (no: it is)."),
    ],
)
def test_doctor_reports_what_answers_on_the_admin_port(
    cli: CommandLine, response: str, level: str, message: str
) -> None:
    with answering(response.encode()) as port, sqlite.lock_for_serving(cli.store, shared=False):
        found = results(cli, PETSTORE_ADMIN_PORT=port)["server"]
    assert level == found[0]
    assert found[1].startswith(f"A server runs on this store{message}")


def test_doctor_does_not_claim_that_a_server_uses_a_store_that_it_cannot_lock(cli: CommandLine) -> None:
    with answering(b'HTTP/1.0 200 OK\r\n\r\n{"status":"ok"}') as port:
        elsewhere = results(cli, PETSTORE_DATABASE_URL="postgresql://x@127.0.0.1:1/db", PETSTORE_ADMIN_PORT=port)
        with sqlite.lock_for_serving(cli.store, shared=False):
            held = results(cli, PETSTORE_ADMIN_PORT=port)
        unused = results(cli, PETSTORE_ADMIN_PORT=port)
    answers = f"A server answers at http://127.0.0.1:{port}/readyz and is ready"
    assert ("ok", f"{answers}; whether it uses this store is not known.") == elsewhere["server"]
    assert ("ok", "A server runs on this store and is ready.") == held["server"]
    assert ("fail", f"{answers}, but it does not use this store.") == unused["server"]


def test_the_console_leaves_the_reading_of_the_whole_store_to_the_doctor(cli: CommandLine) -> None:
    settings = read_settings({"PETSTORE_DATABASE_URL": f"sqlite:///{cli.store}", "PETSTORE_ADMIN_PORT": "0"})
    for in_full, message in (
        (False, "The store was not read in full."),
        (True, "The store was read in full and is sound."),
    ):
        with patch("petstore_server.runtime.maintenance.check", wraps=check) as read:
            found = asyncio.run(examine(settings, time.time, in_full=in_full))
        assert [message] == [result.message for result in found if result.check == "integrity"]
        assert in_full == read.called


def test_doctor_reports_a_store_that_other_users_can_access_or_this_one_cannot(cli: CommandLine) -> None:
    assert "ok" == results(cli)["permissions"][0]
    for mode in (0o640, 0o604, 0o620):
        cli.store.chmod(mode)
        level, message = results(cli)["permissions"]
        assert "warn" == level
        assert f"(mode 0{mode:o})" in message
    with patch.object(health_machine, "check_files", side_effect=PermissionError(errno.EACCES, "Permission denied")):
        assert ("fail", f"This user cannot see {cli.store}: Permission denied.") == results(cli)["permissions"]


@pytest.mark.parametrize(
    ("free", "size", "level"),
    [(64 * MIB - 1, 0, "fail"), (64 * MIB, 0, "ok"), (2047 * MIB, 1024 * MIB, "warn"), (2048 * MIB, 1024 * MIB, "ok")],
)
def test_the_disk_needs_64_mib_and_twice_the_size_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, size: int, level: str
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    store = tmp_path / "store.db"
    store.touch()
    os.truncate(store, size)
    message = f"{free // MIB:,} MiB are free in {tmp_path}; the store takes {size // MIB:,}.0 MiB."
    assert [("disk", level, message)] == [result[:3] for result in check_disk(store)]
    with store.with_name("store.db-wal").open("wb") as log:
        log.truncate(LARGE_LOG + 1)
    assert [("disk", level), ("log", "warn")] == [result[:2] for result in check_disk(store)]


NOW = 1_795_000_000.0  # 2026-11-18T11:06:40Z


@pytest.mark.parametrize(
    ("now", "ahead", "last_change", "level", "message"),
    [
        (NOW, {"Redis": 10.0, "PostgreSQL": -10.0}, NOW + 10, "ok", "says 2026-11-18T11:06:40Z."),
        (NOW, {"Redis": 10.5, "PostgreSQL": 0}, 0.0, "warn", "Z, and that of Redis is 10 seconds ahead."),
        (NOW, {"PostgreSQL": -3601.0}, 0.0, "warn", "Z, and that of PostgreSQL is 3,601 seconds behind."),
        (NOW, {}, NOW + 11, "warn", "the last change of the store was made at 2026-11-18T11:06:51Z."),
        (1_767_225_600.0, {}, 0.0, "ok", "The clock says 2026-01-01T00:00:00Z."),
        (1_767_225_599.0, {}, 0.0, "fail", "The clock says 2025-12-31T23:59:59Z."),
    ],
)
def test_the_clock_is_compared_with_others_and_with_the_last_change(
    now: float, ahead: dict[str, float], last_change: float, level: str, message: str
) -> None:
    found = check_clock(now, ahead, last_change)
    assert level == found.level, found.message
    assert found.message.endswith(message), found.message


def test_a_backup_is_recent_for_two_days() -> None:
    assert ["ok", "warn"] == [check_backups(NOW - age, NOW, with_tools=False).level for age in (2 * DAY, 2 * DAY + 1)]


def test_the_time_of_a_store_s_file_says_nothing_of_the_clock(cli: CommandLine) -> None:
    cli("accounts", "create", "acme", "--plan", "free")
    os.utime(cli.store, (NOW, time.time() + 3600))
    assert "ok" == results(cli)["clock"][0]
    cli.execute("UPDATE audit SET at = at + 3600")
    assert "warn" == results(cli)["clock"][0]
    cli("accounts", "create", "globex", "--plan", "free")  # by a clock that is right again
    assert "ok" == results(cli)["clock"][0]


def test_doctor_asks_postgresql_for_its_settings(
    cli: CommandLine, scaled_out: dict[str, str], postgres: PostgresEngine
) -> None:
    database = scaled_out["PETSTORE_DATABASE_URL"].rpartition("/")[2]
    with postgres.admin() as admin:
        admin.execute(f'ALTER DATABASE "{database}" SET synchronous_commit = off')
    level, message = results(cli, **scaled_out)["postgresql"]
    assert "warn" == level
    assert "synchronous_commit = off" in message


def test_the_contract_is_printed_as_yaml_or_json(cli: CommandLine) -> None:
    text = cli.must("openapi").out
    assert text.startswith("openapi: 3.1.0\n")
    contract = cli.must("openapi", "--json", PETSTORE_BASE_URL="https://api.example.com/v1").json()
    assert "https://api.example.com/v1" == contract["servers"][0]["url"]
    assert set(parse_yaml(text)["paths"]) == set(contract["paths"])
    second = cli.must("openapi", "--api", "v2", "--json", PETSTORE_BASE_URL="https://api.example.com/v1").json()
    assert ("2.0.0-beta.1", "https://api.example.com/v2") == (second["info"]["version"], second["servers"][0]["url"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"not a database" * 1000, "its file is not a SQLite database"),
        (b"", "There is no store in"),
        (None, "is a database of another program"),
    ],
)
def test_a_backup_that_cannot_be_restored_gets_advice_for_a_restore(
    cli: CommandLine, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    backup = tmp_path / "backup.db"
    if content is None:
        CommandLine(backup).execute("CREATE TABLE other (id)")
    else:
        backup.write_bytes(content)
    done = cli("db", "restore", str(backup), "--yes")
    done.fails(1, problem, "Nothing was restored; choose another backup.\n")
    assert "PETSTORE_DATABASE_URL" not in done.err


def test_a_copy_that_cannot_start_gets_advice_for_a_copy(cli: CommandLine) -> None:
    to = {"PETSTORE_COPY_TO_URL": "postgresql://me:secret@127.0.0.1:1/x"}
    other = {"PETSTORE_DATABASE_URL": "postgresql://127.0.0.1:1/y"}
    with sqlite.lock_for_serving(cli.store, shared=False):
        held = cli("db", "copy", **to)
    for done, code, text in (
        (held, 1, "Stop it, and copy again.\n"),
        (cli("db", "copy", **to), 1, "Check the URL of the target.\n"),
        (cli("db", "copy", **to, **other), 2, "this command works on the file of a SQLite store"),
        (cli("db", "copy", "--to", "postgresql://me:sec@ret@127.0.0.1:1/x"), 2, "--to"),
    ):
        done.fails(code, text)
        assert "secret" not in done.err
        assert "ret@" not in done.err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@127.0.0.1:1/x",
        "postgres://me:secret@127.0.0.1:1,127.0.0.1:2/x?sslmode=require",
        "postgresql:///x?host=/run/postgresql&password=secret",
        "postgresql://127.0.0.1:1/x?user=me&pass%77ord=secret",
        "postgresql://127.0.0.1:1/x?sslpassword=secret",
    ],
)
def test_a_copy_takes_a_password_from_the_environment_only(cli: CommandLine, url: str) -> None:
    refused = cli("db", "copy", "--to", url, PETSTORE_COPY_TO_URL=url)
    refused.fails(2, "Set PETSTORE_COPY_TO_URL to the URL instead.\n")
    assert "secret" not in refused.err
    taken = cli("db", "copy", PETSTORE_COPY_TO_URL=url)
    assert "must not hold a password" not in taken.err
    assert "secret" not in taken.err
    cli("db", "copy").fails(2, "env var: 'PETSTORE_COPY_TO_URL'")


def test_a_copy_takes_its_target_from_a_file(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("postgresql://me:s3cr3t@127.0.0.1:1/x\n")
    done = cli("db", "copy", PETSTORE_COPY_TO_URL_FILE=str(tmp_path / "target"))
    done.fails(1, "Check the URL of the target.\n")
    refused = cli("db", "copy", PETSTORE_COPY_TO_URL_FILE=str(tmp_path / "missing"))
    refused.fails(2, f"names {tmp_path}/missing, which cannot be read")
    assert "s3cr3t" not in done.err + refused.err


def test_a_copy_accepts_an_address_without_a_password_on_the_command_line(cli: CommandLine) -> None:
    done = cli("db", "copy", "--to", "postgresql://me@127.0.0.1:1/x?options=-c%20a:b&sslmode=disable")
    done.fails(1, "Check the URL of the target.\n")


def test_dated_backups_are_removed_except_for_the_newest_and_those_dated_in_the_future(
    cli: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    others = ["orders.db", "orders-2020.db", "orders-20201120T093000Z.db.old", "other-20201120T093000Z.db"]
    others.append("orders-20991120T093000Z.db")  # by a clock that was wrong: it does not count
    old = [f"orders-202011{day}T093000Z.db" for day in (18, 19, 20)]
    for name in (*others, *old):
        (folder / name).touch()
    done = cli.must("db", "backup", str(folder / "orders.db"), "--keep", "2", "--json").json()
    new = Path(done["backup"])
    assert re.fullmatch(r"orders-\d{8}T\d{6}Z\.db", new.name)
    assert [str(folder / name) for name in old[:2]] == done["removed"]
    assert {*others, old[2], new.name} == {each.name for each in folder.iterdir()}
    assert 1 == CommandLine(new).must("orders", "show", "1", "--json").json()["id"]
    assert 2 == cli("db", "backup", str(folder / "orders.db"), "--keep", "0").code


def test_a_backup_is_good_although_an_older_one_cannot_be_removed(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "orders-20201120T093000Z.db"
    old.touch()
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", str(old))))
    done = cli("db", "backup", str(tmp_path / "orders.db"), "--keep", "1")
    [new] = {*tmp_path.glob("orders-*.db")} - {old}
    good = f"The backup {new} is good, but an older one could not be removed.\n"
    done.fails(1, f"{good}petstore: {old}: Permission denied.\n")


def test_backups_of_one_second_have_different_names(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 11, 20, 9, 30, tzinfo=UTC).timestamp()
    monkeypatch.setattr(db, "time", SimpleNamespace(time=lambda: at))
    made = [cli.must("db", "backup", str(tmp_path / "orders.db"), "--keep", "5", "--json").json() for _ in range(2)]
    names = [f"orders-20261120T0930{second}Z.db" for second in ("00", "01")]
    assert [{"backup": str(tmp_path / name), "removed": []} for name in names] == made


def test_a_backup_that_fails_removes_no_other(tmp_path: Path) -> None:
    (tmp_path / "orders-20261120T093000Z.db").touch()
    missing = CommandLine(tmp_path / "missing.db", make=False)
    assert 1 == missing("db", "backup", str(tmp_path / "orders.db"), "--keep", "1").code
    assert (tmp_path / "orders-20261120T093000Z.db").exists()


def test_a_backup_that_could_not_be_recorded_is_good_and_older_ones_are_removed(
    cli: CommandLine, tmp_path: Path
) -> None:
    old = tmp_path / "orders-20201120T093000Z.db"
    old.touch()
    cli.execute("UPDATE store SET damage = 'its file is damaged'")
    done = cli.must("db", "backup", str(tmp_path / "orders.db"), "--keep", "1", "--json")
    assert "The backup is good but was not recorded in the store: " in done.err
    assert [str(old)] == done.json()["removed"]
    assert Path(done.json()["backup"]).exists()
    assert not old.exists()


@pytest.mark.parametrize("command", [["backup", "{copies}/backup.db"], ["restore", "{store}", "--yes"]])
def test_a_disk_that_takes_no_copy_is_not_blamed_on_its_source(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    def connect_to_full_disk(path: Path, flags: int) -> apsw.Connection:
        connection = connections.connect(path, flags)
        connection.pragma("max_page_count", 1)
        return connection

    monkeypatch.setattr(maintenance, "connect", connect_to_full_disk)
    copies = tmp_path / "copies"
    copies.mkdir()
    words = [part.format(copies=copies, store=cli.store) for part in command]
    command_line = CommandLine(copies / "store.db" if "restore" in command else cli.store, make=False)
    done = command_line("db", *words)
    expected = f"the disk of {copies} is full; free some space and try again"
    done.fails(1, expected)
    assert str(cli.store) not in done.err
    monkeypatch.setattr(os, "mkdir", Mock(side_effect=PermissionError(errno.EACCES, "Denied")))
    done = command_line("db", *words)
    name = "store.db" if "restore" in command else "backup.db"
    assert f"petstore: {copies}/{name} cannot be used as a store: Denied. Check the disk" in done.err
    assert [] == list(copies.iterdir())


def test_a_backup_that_another_program_made_is_recorded_on_each_engine(
    cli: CommandLine, scaled_out: dict[str, str]
) -> None:
    for settings in ({}, scaled_out):
        [before] = [each for each in cli("doctor", "--json", **settings).json() if each["check"] == "backup"]
        assert "warn" == before["level"]
        assert before["remedy"].endswith("petstore db backup NAME --made") == bool(settings)
        done = cli.must("db", "backup", "pso_live_x.dump", "--made", "--as", "ann", "--json", **settings)
        assert {"backup": "pso_live_x.dump", "removed": []} == done.json()
        [after] = [each for each in cli("doctor", "--json", **settings).json() if each["check"] == "backup"]
        assert "ok" == after["level"]
        assert after["message"].startswith("The last backup was made at 20")
        entry = cli.must("audit", "--json", **settings).json_lines()[-1]
        assert ("operator:ann", {"file": "pso_live_[hidden]"}) == (entry["actor"], entry["after"])
        cli("db", "backup", "orders.dump", "--made", "--keep", "3", **settings).fails(
            2, "--made removes nothing: leave out --keep."
        )


def test_a_restore_keeps_the_time_of_the_last_backup(cli: CommandLine, tmp_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    cli.must("db", "backup", str(first))
    cli.must("db", "backup", str(second))
    before = results(cli)["backup"]
    assert "ok" == before[0]
    cli.must("db", "restore", str(first), "--yes")
    assert before == results(cli)["backup"]
    missing = CommandLine(tmp_path / "missing.db", make=False)
    missing.must("db", "restore", str(first), "--yes")
    assert ("warn", "No backup of this store is known.") == results(missing)["backup"]
    missing.must("db", "restore", str(second), "--yes")
    assert "ok" == results(missing)["backup"][0]
