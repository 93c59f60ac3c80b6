"""How the command line speaks: data on stdout, chatter on stderr, and one line and exit code for every failure."""

import errno
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import apsw
import click

from petstore_server.domain.errors import (
    Conflict,
    DomainError,
    InvalidInput,
    InvalidOrderId,
    NotFound,
    OrderConflict,
    OrderNotFound,
    PetNotFound,
    ServiceUnavailable,
)
from petstore_server.settings import SettingsError

FAILURE, USAGE, PARTLY_DONE, NOT_FOUND, CONFLICT = 1, 2, 3, 5, 6
INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 + the signal, as shells count

EXIT_CODES_HELP = (
    "Exit codes: 0 done, 1 failure, 2 wrong usage, 3 partly done (an import with rejects), "
    "5 not found, 6 conflict, 130 interrupted."
)

_EXIT_CODES: tuple[tuple[type[DomainError], int], ...] = (
    (InvalidInput, USAGE),
    (InvalidOrderId, USAGE),
    (NotFound, NOT_FOUND),
    (OrderNotFound, NOT_FOUND),
    (PetNotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (OrderConflict, CONFLICT),
)
_JSON = "petstore.json"


class Failure(NamedTuple):
    """What a user is told of an error, and the exit code."""

    code: str
    message: str
    exit_code: int


class _PipeClosed(Exception):
    """The reader of stdout went away, as `head` does."""


class Command(click.Command):
    """A command that takes `--json`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--json"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                callback=_note_json,
                help="Write data as JSON to stdout, and errors as one JSON object to stderr.",
            )
        )


class Group(click.Group):
    """A noun: its verbs are commands that take `--json`."""

    command_class = Command
    group_class = type


class Root(Group):
    """The whole command line. Whatever goes wrong below it is told in one line here, and nowhere else."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run and exit; click's meaning of the arguments, but every error becomes one line and an exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        extra["prog_name"] = "petstore"  # however it was started: in help, hints and completion
        if os.environ.get("NO_COLOR"):
            extra["color"] = False
        try:
            code = super().main(arguments, *rest, **extra)
        except _PipeClosed:
            _abandon_stdout()
            code = PIPE_CLOSED
        except Exception as error:  # noqa: BLE001 - the one place where errors end, so that no traceback reaches a user
            code = _tell(error, as_json="--json" in arguments)
            _let_go_of_stdout()
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and make sure that what it wrote has arrived."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise _PipeClosed from None  # click would make it exit code 1
        return result


def _note_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_JSON] = value


def wants_json() -> bool:
    """Whether the running command was given `--json`."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get(_JSON))


def log_to_stderr(text: str) -> None:
    """Tell the operator something that is not data, on stderr."""
    click.echo(text, err=True)


def write(text: str) -> None:
    """Write data to stdout, buffered: the text brings its own line ends."""
    sys.stdout.write(text)


def write_json(value: Any) -> None:
    """Write one JSON value as a line of stdout."""
    write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def paint(text: str, colour: str) -> str:
    """The text in colour, where stdout is a terminal and NO_COLOR is not set."""
    return click.style(text, fg=colour) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def show(value: Any, plain: Callable[[], str]) -> None:
    """Write a result to stdout: as JSON with `--json`, else the text of `plain`."""
    if wants_json():
        write_json(value)
    else:
        write(plain() + "\n")


def details(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values, one pair a line; a value of None is shown as `-`."""
    rows = [(name + ":", "-" if value is None else str(value)) for name, value in pairs]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows in columns under a header; a value of None is shown as `-`."""
    cells = [list(header), *(["-" if value is None else str(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)


def exit_code_of(error: DomainError) -> int:
    """The exit code that a refusal ends with."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FAILURE)


def report(failure: Failure, as_json: bool) -> None:
    """Tell of a failure on stderr, as `{"code","message"}` with `--json`."""
    if as_json:
        text = json.dumps({"code": failure.code, "message": failure.message}, ensure_ascii=False)
    else:
        text = f"petstore: {failure.message}"
    click.echo(text, err=True)


def explain(error: BaseException) -> Failure:
    """What a user is told of an error."""
    if isinstance(error, ServiceUnavailable):
        return Failure(error.code, f"This cannot be done now: {error.reason}", FAILURE)
    if isinstance(error, DomainError):
        return Failure(error.code, error.message, exit_code_of(error))
    if isinstance(error, click.Abort):
        return _explain_abort(error)
    for kind, code, describe, exit_code in _DESCRIBED:
        if isinstance(error, kind):
            return Failure(code, describe(error), exit_code)
    told = f"internal error: {type(error).__name__}: {_one_line(error)}"
    return Failure("internal_error", f"{told}; run with PETSTORE_LOG_LEVEL=debug to see the traceback", FAILURE)


def mask(text: str) -> str:
    """The text without the passwords of the addresses in it."""
    return _PASSWORD.sub(r"\1:***@", text)


def _explain_abort(error: click.Abort) -> Failure:
    if isinstance(error.__cause__ or error.__context__, EOFError):
        return Failure("aborted", "No answer was given; nothing was changed.", FAILURE)
    return Failure("interrupted", "Interrupted.", INTERRUPTED)


def _describe_click(error: Any) -> str:
    return str(error.format_message())


def _describe_os_error(error: Any) -> str:
    reason = error.strerror or _one_line(error)
    if error.errno == errno.ENOSPC:
        reason += " (free some space and try again)"
    return f"{error.filename}: {reason}." if error.filename else f"{reason}."


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


_PASSWORD = re.compile(r"(://[^/@\s]*?):[^@/\s]*@")
_DESCRIBED: tuple[tuple[type[BaseException], str, Callable[[Any], str], int], ...] = (
    (SettingsError, "bad_settings", lambda error: mask(str(error)), USAGE),
    (click.UsageError, "usage", _describe_click, USAGE),
    (click.ClickException, "failure", _describe_click, FAILURE),
    (apsw.Error, "store_failure", lambda error: f"The store failed: {_one_line(error)}.", FAILURE),
    (OSError, "io_failure", _describe_os_error, FAILURE),
)


def _tell(error: Exception, as_json: bool) -> int:
    failure = explain(error)
    if failure.code == "internal_error" and os.environ.get("PETSTORE_LOG_LEVEL", "").lower() == "debug":
        traceback.print_exception(error)
    if isinstance(error, click.UsageError) and not as_json:
        error.show()  # with the usage line and a hint at --help
    else:
        report(failure, as_json)
    return failure.exit_code


def _let_go_of_stdout() -> None:
    """Write out what is left; where that fails, as it did before, Python must not try once more and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        _abandon_stdout()


def _abandon_stdout() -> None:
    """Nobody reads stdout any more: what is still buffered must not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
