"""`petstore doctor`: what it finds, and what it says to do about it."""

import asyncio
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from petstore_server import deadlines
from petstore_server.domain import errors
from petstore_server.domain.timestamps import DAY
from petstore_server.engines import sqlite
from petstore_server.operations import health_machine
from petstore_server.operations.health import CheckResult, check_backups, check_clock
from petstore_server.operations.health_machine import LARGE_LOG, check_disk
from petstore_server.runtime import health
from petstore_server.runtime.health import examine
from petstore_server.settings import SettingsError, read_settings
from testing.cli import CommandLine
from testing.engines import PostgresEngine
from testing.redis_engine import own_redis
from testing.subprocesses import PATIENT


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
        found = asyncio.run(examine(settings, time.time))
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


def test_doctor_reports_traces_that_could_not_be_sent(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.internal:4318"}
    assert "traces" not in results(cli, **wanted)
    assert "fail" == results(cli, **wanted, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")["traces"][0]
    assert "fail" == results(cli, **wanted, OTEL_BSP_MAX_QUEUE_SIZE="1")["traces"][0]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    level, message = results(cli, **wanted)["traces"]
    assert "fail" == level
    assert message.endswith("install the drivers with pip install --require-hashes -r requirements/otel.lock")
    assert "traces" not in results(cli, **wanted, OTEL_TRACES_EXPORTER="none")


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


def test_doctor_reports_more_connections_than_files_can_be_open(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 1024))
    monkeypatch.setattr("resource.setrlimit", Mock())
    assert "connections" not in results(cli, PETSTORE_MAX_CONNECTIONS="768")
    level, message = results(cli, PETSTORE_MAX_CONNECTIONS="769")["connections"]
    assert ("fail", True) == (level, "is 769, but the limit on open files allows 768" in message)


@pytest.mark.parametrize("host", ["192.0.2.1", "fe80::1", "no.such.host.invalid"])
@pytest.mark.parametrize("name", ["PETSTORE_HOST", "PETSTORE_ADMIN_HOST"])
def test_doctor_reports_an_address_that_is_not_of_this_machine(cli: CommandLine, name: str, host: str) -> None:
    found = cli("doctor", "--json", **NO_PORTS, **{name: host}).json()
    remedies = [each["remedy"] for each in found if each["check"] == "ports" and each["level"] == "fail"]
    assert [f"Set {name} to an address of this machine."] == remedies


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


@pytest.mark.parametrize(
    ("answer", "level", "message"),
    [((True, "ok", ""), "ok", " and is ready."), (None, "warn", ", but does not answer at http://127.0.0.1:0/readyz.")],
)
def test_doctor_sees_the_server_that_systemd_starts_for_its_connection(
    cli: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[bool, str, str] | None,
    level: str,
    message: str,
) -> None:
    with ExitStack() as started:

        def start(_: str) -> tuple[bool, str, str] | None:
            started.enter_context(sqlite.lock_for_serving(cli.store, shared=False))
            return answer  # None: it takes longer to start than the doctor waits

        monkeypatch.setattr(health_machine, "_ask", start)
        found = results(cli)
    assert (level, f"A server runs on this store{message}") == found["server"]
    assert "ports" not in found


def test_doctor_says_what_to_do_about_a_redis_that_runs_and_cannot_count(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "TIMEOUTS", PATIENT)
    with own_redis("--appendonly", "yes") as redis:

        def found() -> list[tuple[str, str]]:
            checks = cli("doctor", "--json", **NO_PORTS, PETSTORE_REDIS_URL=redis.url).json()
            return [(each["level"], each["remedy"]) for each in checks if each["check"] == "redis"]

        each_process = "until then each process counts limits on its own"
        assert [("ok", "")] == found()
        redis.client.config_set("maxmemory", "1")
        more = "Raise `maxmemory`: a full Redis stops counting."
        assert [("fail", f"Correct that; {each_process}."), ("warn", more)] == found()
        redis.client.config_set("maxmemory", "0")
        redis.client.config_set("requirepass", "other")
        [(level, remedy)] = found()
        correct = "Correct PETSTORE_REDIS_URL or the rights of its user"
        refused = f"{correct}; until then each process that runs counts limits on its own, and no server starts."
        assert ("fail", refused) == (level, remedy)


def test_doctor_says_what_to_do_about_the_file_of_the_authorities_of_redis(cli: CommandLine) -> None:
    settings = {"PETSTORE_REDIS_URL": "rediss://127.0.0.1:1/0", "PETSTORE_REDIS_CA_FILE": str(cli.store)}
    for wrong in (settings, settings | {"PETSTORE_REDIS_CA_FILE": f"{cli.store}.crt"}):
        [check] = [each for each in cli("doctor", "--json", **wrong).json() if each["check"] == "redis"]
        assert "PETSTORE_REDIS_CA_FILE names" in check["message"]
        assert "Correct that; until then no server starts." == check["remedy"]


@pytest.mark.parametrize(
    ("most", "message"), [(0, "The store was not read in full."), (1 << 30, "The store was read in full and is sound.")]
)
def test_the_doctor_reads_a_store_in_full_that_is_quick_to_read(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, most: int, message: str
) -> None:
    monkeypatch.setattr(health, "_QUICK_TO_READ", most)
    assert ("ok", message) == results(cli)["integrity"]


def test_doctor_reports_a_store_that_this_user_cannot_access(cli: CommandLine) -> None:
    with patch.object(health_machine, "check_files", side_effect=PermissionError(errno.EACCES, "Permission denied")):
        assert ("fail", f"This user cannot see {cli.store}: Permission denied.") == results(cli)["permissions"]


def test_doctor_reports_a_disk_that_is_mounted_read_only_and_not_the_permissions_on_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = dict.fromkeys(("f_frsize", "f_blocks", "f_bfree", "f_bavail"), 1 << 20)
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY, **blocks))
    monkeypatch.setattr("os.access", lambda _, mode: not mode & os.W_OK)
    found = results(cli)
    message = f"The disk of {cli.store.parent} is mounted read-only: no change can be stored."
    assert ("fail", message) == found["disk"]
    assert "ok" == found["permissions"][0]


def test_doctor_reports_a_file_with_a_secret_that_all_users_can_access_unless_docker_mounts_it(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "webhook-secret"
    file.write_text("0123456789abcdef" * 4)
    for mode in (0o644, 0o602):
        file.chmod(mode)
        level, message = results(cli, PETSTORE_WEBHOOK_SECRET_FILE=str(file))["secrets"]
        assert "warn" == level
        assert f"{file} (mode 0{mode:o}), which PETSTORE_WEBHOOK_SECRET_FILE names." in message
    file.chmod(0o660)
    assert "secrets" not in results(cli, PETSTORE_WEBHOOK_SECRET_FILE=str(file))
    file.chmod(0o444)
    monkeypatch.setattr(health_machine, "_MOUNTED_SECRETS", f"{tmp_path}/")
    assert "secrets" not in results(cli, PETSTORE_WEBHOOK_SECRET_FILE=str(file))


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
    ages = 2 * DAY, 2 * DAY + 1, -365 * DAY  # the last one by a clock that was ahead
    assert ["ok", "warn", "warn"] == [check_backups(NOW - age, NOW, with_tools=False).level for age in ages]


def test_doctor_asks_postgresql_for_its_settings(
    cli: CommandLine, scaled_out: dict[str, str], postgres: PostgresEngine
) -> None:
    database = scaled_out["PETSTORE_DATABASE_URL"].rpartition("/")[2]
    with postgres.admin() as admin:
        admin.execute(f'ALTER DATABASE "{database}" SET synchronous_commit = off')
    level, message = results(cli, **scaled_out)["postgresql"]
    assert "warn" == level
    assert "synchronous_commit = off" in message


def test_a_backup_that_another_program_made_is_recorded_on_each_engine(
    cli: CommandLine, scaled_out: dict[str, str]
) -> None:
    for settings in ({}, scaled_out):
        [before] = [each for each in cli("doctor", "--json", **settings).json() if each["check"] == "backup"]
        assert "warn" == before["level"]
        assert before["remedy"].endswith("petstore db backup NAME --made") == bool(settings)
        cli.must("db", "backup", "orders.dump", "--made", **settings)
        assert "ok" == results(cli, **settings)["backup"][0]
