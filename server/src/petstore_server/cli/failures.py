"""How a command ends: errors and signals as one line on stderr, or one JSON object, and an exit code."""

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import click

from petstore_server.cli.output import log_json, log_to_stderr
from petstore_server.domain import errors
from petstore_server.settings import SettingsError

FAILURE, USAGE, PARTLY_DONE, NOT_FOUND, CONFLICT = 1, 2, 3, 5, 6
INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 + the signal, as shells count; see also Interrupted

EXIT_CODES = {
    0: "success: also a server that a signal has stopped",
    FAILURE: "failure: the store cannot be used, or a check failed",
    USAGE: "wrong usage or a bad setting",
    PARTLY_DONE: "partly done: an import with rejects",
    NOT_FOUND: "not found",
    CONFLICT: "conflict: the order has shipped, the account exists, the key is not banned",
    129: "ended by SIGHUP: not a server",
    INTERRUPTED: "ended by Ctrl-C: not a server",
    PIPE_CLOSED: "the reader of stdout has closed it",
    143: "ended by SIGTERM: not a server",
}
EXIT_CODES_HELP = (
    "Exit codes: " + ", ".join(f"{code} {text.partition(':')[0]}" for code, text in EXIT_CODES.items()) + "."
)

_REMEDIES: Mapping[type[errors.DomainError], str] = {
    errors.MissingLimits: "Add --per-minute N and --per-day N.",
    errors.AccountNotFound: "`petstore accounts list` lists all accounts.",
    errors.KeyNotFound: "`petstore keys list` lists all keys.",
    errors.WebhookSecretChanged: "Set that one, or stop the service and run `petstore webhooks rotate --all`.",
    errors.ImportNotFound: "`petstore imports list` lists all imports.",
    errors.TooManyKeys: "`petstore keys list ACCOUNT` shows when each was last used.",
    errors.KeyNotUsable: "`petstore keys create` creates a key.",
    errors.DamagedRecord: "`petstore db check` says how.",
    errors.NoStore: (
        "Check that its disk is mounted and that PETSTORE_DATABASE_URL is right. "
        "`petstore db migrate` creates a new store."
    ),
    errors.StoreOutdated: "Run `petstore db migrate`.",
    errors.StoreDamaged: "`petstore db restore` brings a backup back.",
}
"""The commands that help. Messages from below the command line do not name any."""


class Interrupted(Exception):
    """A signal other than that of Ctrl-C ended the command."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"Interrupted by {number.name}.")
        self.exit_code = 128 + number


class Failure(NamedTuple):
    """The message of an error for a user, and the exit code."""

    code: str
    message: str
    exit_code: int


def explain(error: BaseException) -> Failure:
    if isinstance(error, Interrupted):
        return Failure("interrupted", str(error), error.exit_code)
    if isinstance(error, click.Abort) and isinstance(error.__cause__ or error.__context__, EOFError):
        return Failure("aborted", "No answer was given; nothing was changed.", FAILURE)
    for kind, describe, exit_code, code in _DESCRIBED:
        if isinstance(error, kind):
            return Failure(code or error.code, describe(error), exit_code)
    return Failure("internal_error", f"internal error: {type(error).__name__}: {_one_line(str(error))}", FAILURE)


def report_error(error: Exception, as_json: bool) -> int:
    """Write an error to stderr, as `{"code","message"}` with `--json`; return its exit code."""
    failure = explain(error)
    if failure.code == "internal_error":
        failure = failure._replace(message=f"{failure.message}; run with PETSTORE_LOG_LEVEL=debug to see the traceback")
        if os.environ.get("PETSTORE_LOG_LEVEL", "").lower() == "debug":
            import traceback  # loading it takes long

            traceback.print_exception(error)
    if as_json:
        log_json({"code": failure.code, "message": failure.message, **_wrong_option(error)})
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        log_to_stderr(*error.format_message().splitlines())
    elif isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"Try '{error.ctx.command_path} --help' for help."
        log_to_stderr(*error.ctx.get_usage().splitlines(), hint, "", f"petstore: {failure.message}")
    else:
        log_to_stderr(f"petstore: {failure.message}")
    return failure.exit_code


def _wrong_option(error: Exception) -> dict[str, str]:
    """The option whose value is wrong, and what is wrong with it."""
    if not isinstance(error, click.BadParameter) or not (error.param or error.param_hint):
        return {}
    hint = error.param_hint or (error.param.opts[0] if error.param else "")
    return {"option": str(hint).strip("'"), "problem": _one_line(error.message)}


@contextmanager
def logged(level: str) -> Iterator[None]:
    """Inside the block, log to stderr from `level` up; log an exception and exit with its code."""
    import logging

    from petstore_server.telemetry.logs import logging_to_stderr  # as little as possible for other commands

    server_log = logging.getLogger(__name__)
    with logging_to_stderr(level):
        try:
            yield
        except (click.exceptions.Exit, Interrupted):
            raise
        except Exception as error:
            failure = explain(error)
            defect = error if failure.code == "internal_error" else None
            server_log.error("server failed", extra={"reason": failure.message}, exc_info=defect)
            raise click.exceptions.Exit(failure.exit_code) from error


def _describe_refusal(error: Any) -> str:
    return f"{error.message} {_REMEDIES.get(type(error), '')}".rstrip()


def _describe_unavailable(error: Any) -> str:
    return f"This cannot be done now: {error.reason}. {_REMEDIES.get(type(error), '')}".rstrip()


_NOT_UTF_8 = "The text {!r} is not UTF-8; correct the argument or setting."
_OS_ADVICE = {
    errno.ENOSPC: "free some space and try again",
    errno.EMFILE: "raise the limit on open files, ulimit -n",
    errno.ENFILE: "raise the system's limit on open files",
}


def _describe_os_error(error: Any) -> str:
    advice = f" ({_OS_ADVICE[error.errno]})" if error.errno in _OS_ADVICE else ""
    reason = (error.strerror or _one_line(str(error))) + advice
    if error.errno == errno.EBADF and not error.filename:  # see prepare_streams
        reason = "The command needs stdin or stdout, which is closed"
    return f"{os.fsdecode(error.filename)}: {reason}." if error.filename else f"{reason}."


def _one_line(text: str) -> str:
    return " ".join(text.split())


_DESCRIBED: tuple[tuple[type[Any], Callable[[Any], str], int, str], ...] = (
    (errors.Unreachable, lambda error: error.explanation, FAILURE, ""),
    (errors.ServiceUnavailable, _describe_unavailable, FAILURE, ""),
    (errors.InvalidInput, _describe_refusal, USAGE, ""),
    (errors.NotFound, _describe_refusal, NOT_FOUND, ""),
    (errors.Conflict, _describe_refusal, CONFLICT, ""),
    (errors.DomainError, _describe_refusal, FAILURE, ""),
    (SettingsError, str, USAGE, "invalid_settings"),
    (
        UnicodeEncodeError,
        lambda error: _NOT_UTF_8.format(error.object[error.start : error.end]),
        USAGE,
        "invalid_input",
    ),
    (click.Abort, lambda _: "Interrupted.", INTERRUPTED, "interrupted"),
    (click.UsageError, lambda error: _one_line(error.format_message()), USAGE, "usage"),  # a choice on each line
    (click.ClickException, lambda error: _one_line(error.format_message()), FAILURE, "failure"),
    (OSError, _describe_os_error, FAILURE, "io_error"),
)
"""By the kind of an error, the first that fits: its message, the exit code, and its code unless it has one itself."""


_PATIENCE = 5  # seconds after a signal before what waits, such as a write to a pipe that is not read, is cut off


@contextmanager
def interruptible() -> Iterator[None]:
    """Within this, SIGTERM and SIGHUP have the effect of Ctrl-C, and then raise Interrupted.

    A signal that is ignored, such as SIGHUP under nohup, remains so. On another thread this has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
    elif signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        with interrupted():
            yield
    else:  # blocked instead: asyncio replaces only Python's own handler, without which it cannot cancel its task
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with interrupted():
                yield
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


@contextmanager
def interrupted() -> Iterator[None]:
    """Like `interruptible`, but also where Ctrl-C is ignored. Raises Interrupted."""
    received: list[signal.Signals] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if received:  # a terminal may send SIGHUP twice
            return
        received.append(signal.Signals(number))
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.alarm(_PATIENCE)
        ctrl_c = signal.getsignal(signal.SIGINT)  # that of asyncio, while it runs: it cancels the task
        (ctrl_c if callable(ctrl_c) else signal.default_int_handler)(signal.SIGINT, frame)

    handled = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        if not received:
            raise
        raise Interrupted(received[0]) from None
    finally:
        signal.alarm(0)
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
