"""Whatever goes wrong is one line and an exit code; with `--json` one object. No traceback reaches a user."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import click
import pytest

from petstore_server.cli import console, stores
from petstore_server.cli.main import petstore
from petstore_server.domain import errors
from petstore_server.settings import SettingsError
from support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "store.db")


def commands(
    group: click.Group = petstore, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


def test_the_commands_are_those_of_the_interface() -> None:
    expected = (
        "serve, accounts create, accounts list, accounts show, accounts set-plan, accounts suspend, accounts resume, "
        "keys create, keys list, keys show, keys rotate, keys revoke, keys unban, orders import, orders export, "
        "orders list, orders show, orders ship, orders complete, orders cancel, pets import, audit, openapi, doctor, "
        "db migrate, db check, db backup, db restore, db copy, completion"
    )
    assert sorted(expected.split(", ")) == sorted(" ".join(path) for path in COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example_and_takes_json(path: tuple[str, ...], cli: CommandLine) -> None:
    text = cli.must(*path, "--help").out
    assert "Example" in text
    assert f"petstore {' '.join(path)}" in text
    assert ("--json" in text) == (path != ("serve",))


ERRORS: list[tuple[BaseException, str, int]] = [
    (errors.AccountNotFound("x"), "account_not_found", 5),
    (errors.OrderNotFound(1), "order_not_found", 5),
    (errors.PetNotFound(), "pet_not_found", 5),
    (errors.AccountExists("x"), "account_exists", 6),
    (errors.OrderAlreadyShipped(1), "order_already_shipped", 6),
    (errors.InvalidInput("Wrong."), "invalid_input", 2),
    (errors.StoreUnusable("Gone."), "store_unusable", 1),
    (errors.ServiceUnavailable("the disk is full"), "service_unavailable", 1),
    (SettingsError("PETSTORE_PORT is bad."), "bad_settings", 2),
    (click.UsageError("No."), "usage", 2),
    (click.ClickException("No."), "failure", 1),
    (apsw.FullError("FullError: database or disk is full"), "store_failure", 1),
    (PermissionError(errno.EACCES, "Permission denied", "/etc/shadow"), "io_failure", 1),
    (KeyboardInterrupt(), "interrupted", 130),
    (ZeroDivisionError("two\nlines"), "internal_error", 1),
]


@pytest.mark.parametrize(("error", "code", "exit_code"), ERRORS, ids=[type(error).__name__ for error, _, _ in ERRORS])
def test_every_error_has_a_code_a_line_and_an_exit_code(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: str, exit_code: int
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(stores, "settings_here", fail)
    done = cli("accounts", "list", "--json")
    assert (exit_code, "") == (done.code, done.out)
    told = done.err.strip().splitlines()
    assert 1 == len(told)
    assert code == cli("accounts", "list", "--json").error()["code"]
    assert ["code", "message"] == list(done.error())
    plain = cli("accounts", "list")
    assert exit_code == plain.code
    assert "Traceback" not in plain.err
    assert done.error()["message"] in plain.err


def test_a_defect_shows_its_traceback_only_at_the_debug_level(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(stores, "settings_here", fail)
    line = "internal error: ZeroDivisionError: a defect; run with PETSTORE_LOG_LEVEL=debug to see the traceback"
    assert f"petstore: {line}\n" == cli("accounts", "list").err
    assert "Traceback" in cli("accounts", "list", PETSTORE_LOG_LEVEL="debug").err


@pytest.mark.parametrize(
    "arguments",
    [["nosuch"], ["orders", "nosuch"], ["orders", "show"], ["orders", "list", "--nosuch"], ["keys", "show"]],
)
def test_wrong_usage_is_exit_code_2_and_one_object_with_json(cli: CommandLine, arguments: list[str]) -> None:
    assert "Usage:" in cli(*arguments).err
    done = cli(*arguments, "--json")
    assert (2, "", "usage") == (done.code, done.out, done.error()["code"])


def test_a_setting_that_is_misspelt_or_bad_is_one_line(cli: CommandLine) -> None:
    done = cli("orders", "list", PETSTORE_DATABASE_URI="x")
    assert (2, 1) == (done.code, len(done.err.splitlines()))
    assert "PETSTORE_DATABASE_URI" in done.err
    assert "PETSTORE_DATABASE_URL" in done.err
    bad = cli("orders", "list", "--json", PETSTORE_PORT="many")
    assert (2, "bad_settings") == (bad.code, bad.error()["code"])


def test_a_password_in_an_address_is_not_repeated(cli: CommandLine) -> None:
    done = cli("orders", "list", PETSTORE_REDIS_URL="http://me:secret@host/0")
    assert 2 == done.code
    assert "secret" not in done.err
    assert "http://host/0" in done.err


@pytest.mark.parametrize("command", [["orders", "import", "{file}"], ["pets", "import", "{file}"]])
def test_a_file_that_cannot_be_read_is_one_line(cli: CommandLine, tmp_path: Path, command: list[str]) -> None:
    missing = str(tmp_path / "missing.csv")
    done = cli(*(part.format(file=missing) for part in command), "--json")
    assert (1, "io_failure") == (done.code, done.error()["code"])
    assert f"{missing}: No such file or directory." == done.error()["message"]
    folder = cli(*(part.format(file=tmp_path) for part in command))
    assert (1, 1) == (folder.code, len(folder.err.splitlines()))


@pytest.mark.parametrize(
    "content", [b"this is no database at all, but text" * 100, b"SQLite format 3\x00" + b"\xff" * 4096]
)
def test_a_store_that_is_none_is_one_line_that_names_it(cli: CommandLine, content: bytes) -> None:
    cli.store.write_bytes(content)
    for command in (["orders", "list"], ["accounts", "create", "acme", "--plan", "free"], ["db", "migrate"]):
        done = cli(*command)
        assert (1, "", 1) == (done.code, done.out, len(done.err.splitlines())), done.err
        assert str(cli.store) in done.err
    assert content == cli.store.read_bytes()


def test_a_postgresql_that_does_not_answer_is_one_line_without_its_password(cli: CommandLine) -> None:
    url = "postgresql://petstore:secret@127.0.0.1:1/petstore"
    done = cli("orders", "list", "--json", PETSTORE_DATABASE_URL=url)
    assert (1, "store_unusable") == (done.code, done.error()["code"])
    assert "PETSTORE_DATABASE_URL" in done.error()["message"] or "127.0.0.1" in done.error()["message"]
    assert "secret" not in done.err


def test_an_import_that_stops_says_what_is_kept(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from petstore_server.storage.sqlite.orders import SqliteOrders

    take, calls = SqliteOrders.import_batch, []

    async def fail_at_the_third(self: SqliteOrders, *args: object) -> object:
        calls.append(args)
        if len(calls) == 3:
            raise errors.ServiceUnavailable("the disk is full")
        return await take(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(SqliteOrders, "import_batch", fail_at_the_third)
    done = cli("orders", "import", "-", stdin="".join(f'{{"id":{number}}}\n' for number in range(14_000)))
    assert 1 == done.code
    assert "Stopped after 8000 orders, which are kept" in done.err
    assert "the disk is full" in done.err
    assert 8000 == len(cli.must("orders", "export", "-").out.splitlines())


def test_passwords_are_masked_wherever_they_stand_in_an_address() -> None:
    assert "redis://:***@host/0 and x://u:***@h" == console.mask("redis://:pw@host/0 and x://u:pw@h")
    assert "http://host:8080/readyz" == console.mask("http://host:8080/readyz")


def test_the_operator_has_a_name_even_where_the_system_knows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("no such user id")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert f"operator:{os.getuid()}" == stores.operator().name
