"""Messages, errors and exit codes: data goes to stdout, everything else to stderr, one line for each failure."""

import io
import json
import logging
import os
import re
import select
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn, TypeVar

import click

from petstore_client import errors

T = TypeVar("T")
RETRY_TIMEOUT = 120.0
FAILURE, USAGE, NOT_FOUND, CONFLICT, PIPE_CLOSED = 1, 2, 5, 6, 141

OPTIONS = {"max_wait": "--max-wait", "deadline": "--deadline", "max_retries": "--max-retries"}
CODES = "0 success, 1 failure, 2 usage, 5 not found, 6 conflict, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP, 141 closed pipe"
EXIT_CODES_HELP = f"Exit codes: {CODES}."


def run(command: click.Command, arguments: Sequence[str]) -> NoReturn:
    """Run a command and exit. Every failure becomes one line and an exit code."""
    _open_closed_streams()
    _escape_unencodable()
    code = 0
    try:
        with command.make_context("petstore-client", list(arguments)) as ctx:
            command.invoke(ctx)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # the help, as it is, on stderr
        code = USAGE
    except BrokenPipeError:  # the reader of stdout closed it, as `head` does
        _abandon_stdout()
        code = PIPE_CLOSED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - so that no traceback reaches a user
        code = report(error, as_json=not {"--json", "--jsonl", "watch"}.isdisjoint(arguments))
    sys.exit(code)


def each(
    call: Callable[[int], T], numbers: Iterable[int], codes: list[int], as_json: bool, doubt: str = ""
) -> Iterator[tuple[int, T]]:
    """The results of a call for each order. Failures are reported, and their exit codes added to `codes`.

    `doubt` says what may have happened to the order of an interrupted call.
    """
    for number in numbers:
        try:
            yield number, call(number)
        except errors.PetstoreError as error:
            codes.append(report(error, as_json, number))
            if isinstance(error, _OF_ALL):
                return
        except KeyboardInterrupt as error:
            if doubt:
                error.add_note(f"Order {number} {doubt}")
            raise


def close_with_stdout(close: Callable[[], None]) -> None:
    """Close the client, which ends an iteration, when the reader of stdout has gone."""
    with suppress(AttributeError, OSError, ValueError):  # Windows has no poll, and not every stream is a file
        poll = select.poll()
        poll.register(sys.stdout, 0)
        poll.poll()  # until there is an error
        close()


# Errors that would stop the calls for other orders as well
_OF_ALL = errors.AuthenticationError | errors.PermissionDeniedError | errors.RateLimitError | errors.ConfigurationError


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


def log_to_stderr(ctx: click.Context) -> None:
    """Print the log of the client to stderr until the command ends."""
    logger, handler = logging.getLogger("petstore_client"), _Handler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    ctx.call_on_close(partial(logger.setLevel, logger.level))
    ctx.call_on_close(partial(logger.removeHandler, handler))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


def say(message: str) -> None:
    """Print a line to stderr. Text of the server and of arguments must not control the terminal."""
    with suppress(OSError):  # a full disk or a reader that has gone changes neither what is done nor the exit code
        click.echo(errors.printable(message), err=True)


def report(error: BaseException, as_json: bool, order_id: int | None = None) -> int:
    """Print a failure, of this order, to stderr, in JSON if that was requested, and return the exit code."""
    code, message, exit_code = explain(error)
    if as_json:
        number = getattr(error, "order_id", None) if order_id is None else order_id
        say(json.dumps({"code": code, "message": message} | ({} if number is None else {"id": number})))
    else:
        say(f"petstore-client: {'' if order_id is None else f'order {order_id}: '}{message}")
    return exit_code


def explain(error: BaseException) -> tuple[str, str, int]:
    """The code, the message and the exit code of an error."""
    if isinstance(error, KeyboardInterrupt):
        notes: list[str] = [_placed(error)] if errors.idempotency_key_of(error) else getattr(error, "__notes__", [])
        number: int = getattr(error, "number", signal.SIGINT)
        return "interrupted", " ".join(["Interrupted.", *notes[-1:]]), 128 + number
    if isinstance(error, click.ClickException):
        return "usage", error.format_message(), USAGE
    if isinstance(error, errors.PetstoreError):
        return _explain_petstore_error(error)
    if isinstance(error, OSError):
        reason = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}."
        return "io_error", f"{reason} {_placed(error)}" if errors.idempotency_key_of(error) else reason, FAILURE
    return "internal_error", f"internal error: {type(error).__name__}: {' '.join(str(error).split())}", FAILURE


def _explain_petstore_error(error: errors.PetstoreError) -> tuple[str, str, int]:
    code = (error.code if isinstance(error, errors.APIStatusError) else "") or _snake(type(error).__name__)
    message: str = getattr(error, "message", None) or str(error.args[0])
    if error.ended_by in OPTIONS:  # the command has this option of the client
        reason = "" if error.ended_by in message else f" {errors.REASONS[error.ended_by]}"
        message = f"{message}{reason}".replace(error.ended_by, OPTIONS[error.ended_by])
    elif error.ended_by is not None:
        message += f" Gave up after {RETRY_TIMEOUT:.0f} seconds."
    if error.may_have_been_applied:
        key = error.idempotency_key
        message += f" {_placed(error)}" if key else " The order may have been cancelled: run the command again."
    kinds = ((errors.ConfigurationError, USAGE), (errors.NotFoundError, NOT_FOUND), (errors.ConflictError, CONFLICT))
    return code, message, next((exit_code for kind, exit_code in kinds if isinstance(error, kind)), FAILURE)


def _placed(error: BaseException) -> str:
    key = shlex.quote(errors.idempotency_key_of(error) or "")
    return f"The order may have been placed: run the command again with --idempotency-key {key}."


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-zI])(?=[A-Z][a-z])", "_", name).lower()


def _open_closed_streams() -> None:
    """Open the null device for each stream that the caller closed (`>&-`): a connection could get its descriptor."""
    for name, flags, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def _escape_unencodable() -> None:
    """Let stdout and stderr escape the characters that their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _abandon_stdout() -> None:
    """Prevent the interpreter from reporting the closed pipe at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
