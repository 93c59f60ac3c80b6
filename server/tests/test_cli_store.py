"""`petstore db`, `doctor`, `openapi` and `completion`."""

import json
import os
import socket
from pathlib import Path

import apsw
import pytest
import yaml

from petstore_server.cli.doctor import store as store_health
from petstore_server.storage import sqlite
from support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "store.db")
    cli.must("orders", "import", "-", stdin='{"id":1}\n')
    return cli


def results(cli: CommandLine, **settings: str) -> dict[str, tuple[str, str]]:
    """Level and message of each check that `doctor` told of; of several of one name the worst."""
    ports = {"PETSTORE_PORT": "0", "PETSTORE_ADMIN_PORT": "0"}
    done = cli("doctor", "--json", **{**ports, **settings})
    told = json.loads(done.out)
    assert (1 if any(each["level"] == "fail" for each in told) else 0) == done.code
    assert all(each["remedy"] for each in told if each["level"] != "ok")
    worst = sorted(told, key=lambda each: ["ok", "warn", "fail"].index(each["level"]))
    return {each["check"]: (each["level"], each["message"]) for each in worst}


def test_migrating_makes_a_missing_store_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "new.db")
    first = cli.must("db", "migrate", "--json")
    assert {"before": 0, "after": sqlite.LATEST_VERSION} == first.json()
    assert str(cli.store) in first.err
    assert "nothing was to be done" in cli.must("db", "migrate").out


def test_a_sound_store_is_told_so_and_a_damaged_one_fails(cli: CommandLine) -> None:
    assert {"sound": True, "problems": []} == cli.must("db", "check", "--json").json()
    connection = apsw.Connection(str(cli.store))
    connection.execute("UPDATE orders SET record = '{\"id\":2}'")
    connection.close()
    done = cli("db", "check")
    assert 1 == done.code
    assert "Order 1" in done.out
    assert "fail" == results(cli)["integrity"][0]


def test_a_backup_can_be_restored(cli: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    assert {"backup": str(target)} == cli.must("db", "backup", str(target), "--json").json()
    cli.must("orders", "cancel", "1")
    cli.must("db", "restore", str(target))  # asks nobody where stdin is no terminal
    assert "pending" == cli.must("orders", "show", "1", "--json").json()["status"]
    assert 6 == cli("db", "backup", str(target)).code
    assert 2 == cli("db", "restore", str(tmp_path / "missing.db")).code


def test_a_file_that_is_no_backup_is_not_restored(cli: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_text("no database" * 1000)
    assert 1 == cli("db", "restore", str(other)).code
    assert 1 == cli.must("orders", "show", "1", "--json").json()["id"]


def test_the_doctor_finds_a_new_store_sound_and_without_partners(cli: CommandLine) -> None:
    told = results(cli)
    assert {"ok"} == {told[check][0] for check in ("settings", "store", "disk", "clock", "integrity", "server")}
    assert "warn" == told["accounts"][0]
    cli.must("accounts", "create", "acme", "--plan", "free")
    assert "warn" == results(cli)["keys"][0]
    cli.must("keys", "create", "acme", "--expires", "3d")
    told = results(cli)
    assert ("ok", "warn") == (told["accounts"][0], told["keys"][0])


def test_the_doctor_says_what_is_missing(tmp_path: Path) -> None:
    level, message = results(CommandLine(tmp_path / "missing.db"))["store"]
    assert "fail" == level
    assert str(tmp_path / "missing.db") in message
    assert not (tmp_path / "missing.db").exists()


def test_the_doctor_tells_of_bad_settings_and_shows_no_password(cli: CommandLine) -> None:
    assert "fail" == results(cli, PETSTORE_PORT="many")["settings"][0]
    told = results(cli, PETSTORE_REDIS_URL="redis://:secret@host/0")
    assert "fail" == told["redis"][0]
    assert "redis://:***@host/0" in told["redis"][1]
    assert "fail" == results(cli, PETSTORE_WORKERS="2")["redis"][0]
    assert "fail" == results(cli, PETSTORE_DATABASE_URL="postgresql://me:secret@host/petstore")["store"][0]


def test_the_doctor_hints_at_what_a_deployment_forgets(cli: CommandLine) -> None:
    assert "warn" == results(cli)["address"][0]
    told = results(cli, PETSTORE_BASE_URL="https://api.example.com/v1", PETSTORE_ADMIN_HOST="0.0.0.0")
    assert "address" not in told
    assert ("warn", "warn") == (told["proxies"][0], told["admin"][0])


def test_the_doctor_tells_a_port_that_is_taken(cli: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        level, message = results(cli, PETSTORE_PORT=str(port))["ports"]
    assert "fail" == level
    assert str(port) in message


def test_the_doctor_tells_a_server_that_holds_the_store(cli: CommandLine) -> None:
    with sqlite.lock_for_serving(cli.store, shared=False):
        level, message = results(cli, PETSTORE_ADMIN_PORT="1")["server"]
    assert "warn" == level
    assert "does not answer" in message
    assert ("ok", "No server runs on this store.") == results(cli)["server"]


def test_the_doctor_looks_at_disk_clock_log_and_permissions(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_health, "_LEAST_FREE", 1 << 60)
    cli.store.chmod(0o666)
    told = results(cli)
    assert ("fail", "warn") == (told["disk"][0], told["permissions"][0])
    far = 4_000_000_000
    os.utime(cli.store, (far, far))
    assert "warn" == store_health._clock(cli.store).level
    with cli.store.with_name(cli.store.name + "-wal").open("wb") as log:
        log.truncate(store_health._LARGE_LOG + 1)
    assert ["disk", "log"] == [result.check for result in store_health._disk(cli.store)]


def test_the_contract_is_printed_as_yaml_or_json(cli: CommandLine) -> None:
    text = cli.must("openapi").out
    assert text.startswith("# ")
    contract = cli.must("openapi", "--json", PETSTORE_BASE_URL="https://api.example.com/v1").json()
    assert "https://api.example.com/v1" == contract["servers"][0]["url"]
    assert set(yaml.safe_load(text)["paths"]) == set(contract["paths"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(cli: CommandLine, shell: str) -> None:
    assert "_PETSTORE_COMPLETE" in cli.must("completion", shell).out
    assert 2 == cli("completion", "tcsh").code
