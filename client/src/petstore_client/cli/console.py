"""How the command speaks: data on stdout, chatter on stderr, and one line and exit code for every failure."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from petstore_client.errors import (
    APIStatusError,
    ConfigurationError,
    ConflictError,
    NotFoundError,
    PetstoreError,
)

FAILURE, USAGE, NOT_FOUND, CONFLICT = 1, 2, 5, 6
INTERRUPTED, PIPE_CLOSED = 128 + signal.SIGINT, 128 + signal.SIGPIPE

EXIT_CODES_HELP = "Exit codes: 0 done, 1 failure, 2 wrong usage, 5 not found, 6 conflict, 130 interrupted."


class PipeClosed(Exception):
    """The reader of stdout went away, as `head` does."""


class Root(click.Group):
    """The whole command. Whatever goes wrong below it is told in one line here, and nowhere else."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run and exit; click's meaning of the arguments, but every error becomes one line and an exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra.update(standalone_mode=False, prog_name="petstore-client")
        try:
            code = super().main(arguments, *rest, **extra)
            sys.stdout.flush()
        except (BrokenPipeError, PipeClosed):
            _abandon_stdout()
            code = PIPE_CLOSED
        except Exception as error:  # noqa: BLE001 - the one place where errors end, so that no traceback reaches a user
            code = tell(error, as_json="--json" in arguments or "--jsonl" in arguments)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe is told apart from other failures, which click would not do."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise PipeClosed from None


def tell(error: Exception, as_json: bool) -> int:
    """Tell of a failure on stderr, as `{"code","message"}` where JSON was asked for; return the exit code."""
    code, message, exit_code = explain(error)
    if as_json:
        text = json.dumps({"code": code, "message": message}, ensure_ascii=False)
    else:
        text = f"petstore-client: {message}"
    click.echo(text, err=True)
    return exit_code


def explain(error: Exception) -> tuple[str, str, int]:
    """The code, the sentence and the exit code of an error."""
    if isinstance(error, click.Abort):
        return "interrupted", "Interrupted.", INTERRUPTED
    if isinstance(error, click.ClickException):
        return "usage", error.format_message(), USAGE
    if isinstance(error, PetstoreError):
        return _explain_petstore_error(error)
    if isinstance(error, OSError):
        return "io_error", f"{error.strerror or error}.", FAILURE
    return "internal_error", f"internal error: {type(error).__name__}: {' '.join(str(error).split())}", FAILURE


def _explain_petstore_error(error: PetstoreError) -> tuple[str, str, int]:
    code = (error.code if isinstance(error, APIStatusError) else "") or _snake(type(error).__name__)
    message = error.message if isinstance(error, APIStatusError) else str(error)
    if error.may_have_been_applied:
        message += " The order may be cancelled all the same: run the command again."
    kinds = ((ConfigurationError, USAGE), (NotFoundError, NOT_FOUND), (ConflictError, CONFLICT))
    return code, message, next((exit_code for kind, exit_code in kinds if isinstance(error, kind)), FAILURE)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _abandon_stdout() -> None:
    """Keep the interpreter from complaining about the closed pipe when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None
