"""Every failure is one line and an exit code, or one object with `--json`. No traceback reaches a user."""

import errno
import json
import os
import re
from pathlib import Path
from unittest.mock import Mock

import click
import pytest

import petstore_server
from petstore_server.cli import commands as command_parts
from petstore_server.cli.failures import explain
from petstore_server.cli.main import COMMANDS as SUMMARIES
from petstore_server.cli.main import petstore
from petstore_server.domain import errors
from petstore_server.domain.errors import StoreUnusable
from petstore_server.engines.sqlite.opening import unusable_on_error
from petstore_server.settings import SettingsError
from testing.cli import CommandLine
from testing.documents import texts
from testing.generated_tables import every_command, subcommands
from testing.process import petstore_bytes

COMMANDS = dict(every_command())


def test_the_help_of_the_whole_lists_each_command_with_its_first_sentence(cli: CommandLine) -> None:
    shown = " ".join(cli.must("--help").out.split())
    found = {name: command.get_short_help_str(limit=1000) for name, command in subcommands(petstore).items()}
    for name, sentence in found.items():
        assert f" {name} {sentence} " in shown
    assert found == SUMMARIES  # which is shown while no command has been imported, as in a new process


@pytest.mark.parametrize("group", [(), ("accounts",), ("db",)], ids=" ".join)
def test_without_a_command_the_help_is_shown_as_it_is(group: tuple[str, ...], cli: CommandLine) -> None:
    done = cli(*group)
    done.fails(2)
    assert cli.must(*group, "--help").out == done.err


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example_and_takes_json(path: tuple[str, ...], cli: CommandLine) -> None:
    text = cli.must(*path, "--help").out
    assert "Example" in text
    assert f"petstore {' '.join(path)}" in text
    assert ("--json" in text) == (path != ("serve",))


ERRORS: list[tuple[BaseException, str, int]] = [
    (errors.AccountNotFound("x"), "account_not_found", 5),
    (errors.InvalidOrderId(), "invalid_order_id", 2),
    (errors.OrderNotFound(1), "order_not_found", 5),
    (errors.PetNotFound(), "pet_not_found", 5),
    (errors.AccountExists("x"), "account_exists", 6),
    (errors.OrderAlreadyShipped(1, "can no longer be cancelled; do not retry"), "order_already_shipped", 6),
    (errors.InvalidInput("Wrong."), "invalid_input", 2),
    (errors.StoreUnusable("Gone."), "store_unusable", 1),
    (errors.ServiceUnavailable("the disk is full"), "service_unavailable", 1),
    (SettingsError("PETSTORE_PORT is bad."), "invalid_settings", 2),
    (click.UsageError("No."), "usage", 2),
    (click.ClickException("No."), "failure", 1),
    (PermissionError(errno.EACCES, "Permission denied", "/etc/shadow"), "io_error", 1),
    (KeyboardInterrupt(), "interrupted", 130),
    (ZeroDivisionError("two\nlines"), "internal_error", 1),
]


@pytest.mark.parametrize(("error", "code", "exit_code"), ERRORS, ids=[type(error).__name__ for error, _, _ in ERRORS])
def test_every_error_has_a_code_a_line_and_an_exit_code(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: str, exit_code: int
) -> None:
    monkeypatch.setattr(command_parts, "settings_here", Mock(side_effect=error))
    done = cli("accounts", "list", "--json")
    done.fails(exit_code)
    assert 1 == len(done.err.strip().splitlines())
    assert ["code", "message"] == list(done.error())
    assert code == done.error()["code"]
    plain = cli("accounts", "list")
    assert exit_code == plain.code
    assert "Traceback" not in plain.err
    assert done.error()["message"] in plain.err


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (errors.AccountNotFound("x"), ["accounts", "list"]),
        (errors.KeyNotFound("x"), ["keys", "list"]),
        (errors.KeyNotUsable("x", "revoked"), ["keys", "create"]),
        (errors.TooManyKeys("x", 2, 2), ["keys", "list"]),
        (errors.DamagedRecord(1), ["db", "check"]),
        (errors.NoStore("There is no store."), ["db", "migrate"]),
        (errors.StoreOutdated("It is old."), ["db", "migrate"]),
        (errors.StoreDamaged("It is damaged."), ["db", "restore"]),
    ],
)
def test_a_failure_names_the_command_that_helps(error: errors.DomainError, command: list[str]) -> None:
    message = explain(error).message
    assert message.startswith(error.message)
    assert re.search(f"`petstore {' '.join(command)}[ `]", message)
    assert tuple(command) in COMMANDS


def test_only_the_command_line_names_commands_and_options() -> None:
    """What is below it is also shown by the console, to people without a command line.

    `imports` is left out: both run it only through `petstore orders import`.
    """
    root = Path(petstore_server.__file__).parent
    below = [file for name in ("domain", "store", "engines", "operations") for file in (root / name).rglob("*.py")]
    assert len(below) > 40
    named = [
        (file.name, text) for file in below for text in texts(file) if re.search(r"petstore [a-z]|(^|\W)--[a-z]", text)
    ]
    assert [] == named


def test_a_defect_shows_its_traceback_only_at_the_debug_level(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_parts, "settings_here", Mock(side_effect=ZeroDivisionError("a defect")))
    line = "internal error: ZeroDivisionError: a defect; run with PETSTORE_LOG_LEVEL=debug to see the traceback"
    assert f"petstore: {line}\n" == cli("accounts", "list").err
    assert "Traceback" in cli("accounts", "list", PETSTORE_LOG_LEVEL="debug").err


LEAKED = "pso_live_" + "Ab3" * 11
NOT_UTF_8 = os.fsdecode(b"caf\xe9")
CONTROLS = set("\x1b\x07\x9b\r\u061c\u202e")
HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u061c\u202eabc\rroot"


@pytest.mark.parametrize("word", [LEAKED, NOT_UTF_8, HOSTILE], ids=["a key", "not UTF-8", "control characters"])
@pytest.mark.parametrize(
    "words",
    [
        "{}",
        "keys {}",
        "keys show {}",
        "keys rotate {}",
        "keys create {}",
        "keys create acme --note {}",
        "keys create acme --expires {}",
        "keys list acme {}",
        "accounts show {}",
        "accounts create {} --plan free",
        "accounts suspend acme --as {}",
        "orders cancel {}",
        "orders import {}",
        "audit --since {}",
        "db restore {}",
    ],
)
def test_a_word_that_must_not_be_shown_is_refused_and_neither_repeated_nor_stored(
    acme: CommandLine, words: str, word: str
) -> None:
    for options in ([], ["--json"]):
        done = acme(*(part.format(word) for part in words.split()), *options)
        assert done.code in (2, 5)
        assert "" == done.out
        assert LEAKED[9:20] not in done.err
        assert not CONTROLS & set(done.err)
        assert "internal error" not in done.err
        assert word is not NOT_UTF_8 or "caf" in done.err
    assert LEAKED[9:20].encode() not in b"".join(file.read_bytes() for file in acme.store.parent.iterdir())


def test_what_is_decoded_to_hide_a_key_cannot_control_a_terminal_or_forge_a_line(cli: CommandLine) -> None:
    word = "%1b[2J%0apetstore: all is well; %22 pso_live_Ab3"
    text = r"""'\x1b[2J\npetstore: all is well; " pso_live_[hidden]'"""
    cli("accounts", "show", word).fails(5, f"petstore: There is no account {text}. `petstore accounts list`")
    message = cli("accounts", "show", word, "--json").error()["message"]
    assert message.startswith("There is no account '\x1b[2J\npetstore: all is well; \" pso_live_[hidden]'.")
    done = cli("orders", "import", "-", stdin=f"id,status\n1,{word}\n".replace('"', ""))
    assert text in done.err
    assert not CONTROLS & set(done.err)
    assert not [line for line in done.err.splitlines() if line.startswith("petstore:")]


def test_a_file_name_that_is_not_utf_8_can_be_used(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / f"{NOT_UTF_8}.jsonl"
    file.write_text('{"id":1}\n')
    cli.must("orders", "import", str(file))
    cli("orders", "import", str(tmp_path / f"{NOT_UTF_8}.csv")).fails(2, "does not exist")


def test_control_characters_in_stored_text_are_escaped(acme: CommandLine) -> None:
    acme.must("keys", "create", "acme", "--note", "clean")
    acme.execute("UPDATE keys SET note = ?", HOSTILE + "\nkey_forged  acme")
    acme.execute("UPDATE audit SET actor = ?, subject = ?", HOSTILE, HOSTILE)
    key_id = acme.must("keys", "list", "--json").json()[0]["id"]
    for command in (["keys", "list"], ["keys", "show", key_id], ["accounts", "show", "acme"], ["audit"], ["doctor"]):
        for options in ([], ["--json"]):
            done = acme(*command, *options, PETSTORE_PORT="0", PETSTORE_ADMIN_PORT="0")
            assert not CONTROLS & set(done.out + done.err), command
            assert not any(line.startswith("key_forged") for line in done.out.splitlines())
    assert HOSTILE == acme.must("audit", "--json").json_lines()[0]["actor"]
    assert r"\x1b[2J" in acme.must("audit").out


def test_output_never_fails_on_a_terminal_with_another_encoding(acme: CommandLine) -> None:
    acme.must("keys", "create", "acme", "--note", "Käse für 東京")
    shown = {}
    for command in ("audit", "keys list --json", "keys create --help"):
        done = petstore_bytes(acme.store, *command.split(), PYTHONIOENCODING="ascii")
        assert (0, b"") == (done.returncode, done.stderr), command
        shown[command] = done.stdout.decode("ascii", "replace")  # click writes help to an ASCII terminal as UTF-8
    assert "Käse für 東京" == json.loads(shown["keys list --json"])[0]["note"]
    assert " - -> " in shown["audit"]


@pytest.mark.parametrize("command", ["audit", "usage"])
@pytest.mark.parametrize("until", ["2026-11-20", "2026-11-19"])
def test_a_period_without_any_time_is_refused(acme: CommandLine, command: str, until: str) -> None:
    refused = acme(command, "--since", "2026-11-20", "--until", until)
    refused.fails(2, "The period is empty; give a later --until or an earlier --since.")


def test_a_user_without_a_name_is_an_operator_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=KeyError("no such user id")))
    assert f"operator:{os.getuid()}" == command_parts.operator().name


def test_every_command_that_writes_takes_the_operators_name() -> None:
    reads = {"list", "show", "find", "export", "check", "migrate", "serve"}
    reads |= {"audit", "openapi", "doctor", "top"}
    for path, command in COMMANDS.items():
        names = [option for parameter in command.params for option in parameter.opts]
        assert ("--as" in names) == (path[-1] not in reads), path


@pytest.mark.parametrize(
    ("number", "named"),
    [(errno.EMFILE, "limit on open files"), (errno.ENFILE, "limit on open files"), (errno.ENOSPC, "ree some space")],
)
def test_a_system_that_refuses_a_file_is_not_blamed_on_the_permissions_of_the_store(
    tmp_path: Path, number: int, named: str
) -> None:
    error = OSError(number, os.strerror(number))
    with pytest.raises(StoreUnusable) as raised, unusable_on_error(tmp_path):
        raise error
    for message in (explain(error).message, explain(raised.value).message):
        assert named in message
        assert "permissions" not in message
