"""The process of an import: `petstore orders import`, what it reports, and why it failed."""

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from subprocess import CalledProcessError
from typing import Any

import msgspec

from petstore_server.console.import_choices import FIELDS, field_of
from petstore_server.domain.errors import AccountNotFound, DomainError, InvalidInput
from petstore_server.imports.files import UnreadableFile
from petstore_server.imports.running import HISTORY_CHANGED
from petstore_server.settings import overriding

_log = logging.getLogger(__name__)

_OPTIONS = "PETSTORE_IMPORT_OPTIONS"  # what operators enter: every user of the machine sees arguments
_TAKE_OPTIONS = f"import json, os, sys; sys.argv += json.loads(os.environ.pop('{_OPTIONS}', '[]'))"
_PETSTORE = (sys.executable, "-P", "-c", f"{_TAKE_OPTIONS}; from petstore_server.cli.start import main; main()")
_COMMAND = ("orders", "import", "-", "--json", "--progress")
_PARTLY_DONE = 3  # the exit code of an import with rejected rows
_STOP_SECONDS = 30.0
_DONE = "If it was importing, the list of imports shows what was imported; a check changes nothing."
_STOPPED = f"The import ended unexpectedly; the log of the server says why. {_DONE}"
_MAX_LINE = 1 << 22  # bytes that the command writes at a time


class ImportProgress(msgspec.Struct, rename="camel"):
    """A line of `petstore orders import --json --progress`: bytes of the file handled, rows by outcome, and the end.

    A check also has the first orders as they would be stored, with their lines, and the texts that the file has as
    statuses.
    """

    position: int = 0
    created: int = 0
    unchanged: int = 0
    replaced: int = 0
    rejected: int = 0
    import_id: str = msgspec.field(default="", name="import")
    reasons: list[str] = []
    warnings: list[str] = []
    left: list[str] = []
    history_changed: bool = False
    preview: list[tuple[int, dict[str, Any]]] = []
    statuses: list[str] = []


class WrongField(InvalidInput):
    """A field of the form has a wrong value; `field` is its name, None if it is not one of the form."""

    def __init__(self, message: str, field: str | None) -> None:
        super().__init__(message)
        self.field = field


async def run_import(
    options: list[str], database_url: str, file: int, rejects: int, report: Callable[[ImportProgress], None]
) -> None:
    """Run the command on a file, given by its descriptor, and `report` what it says of its progress.

    Cancelling stops it after a batch. Raises OSError, UnreadableFile, WrongField, DomainError, and CalledProcessError
    if the command did not report why it failed.
    """
    os.lseek(file, 0, os.SEEK_SET)
    given = {"PETSTORE_DATABASE_URL": database_url, _OPTIONS: json.dumps(options, ensure_ascii=False)}
    process = await asyncio.create_subprocess_exec(
        *(*_PETSTORE, *_COMMAND),
        env=overriding(os.environ, given),
        stdin=file,
        stdout=PIPE,
        stderr=PIPE,
        limit=_MAX_LINE,
        pass_fds=(rejects,),
        start_new_session=True,  # Ctrl-C reaches only the server
    )
    following = asyncio.ensure_future(_follow(process, report))
    try:
        await asyncio.wait({following})  # which a cancellation does not end
        following.result()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(following, return_exceptions=True), _STOP_SECONDS)
        raise
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _follow(process: Process, report: Callable[[ImportProgress], None]) -> None:
    assert process.stdout is not None  # noqa: S101 - for the type checker: a pipe was requested
    assert process.stderr is not None  # noqa: S101
    errors = asyncio.ensure_future(process.stderr.read())
    last = ImportProgress()
    while line := await process.stdout.readline():
        last = msgspec.json.decode(line, type=ImportProgress)
        report(last)
    lines = (await errors).splitlines()
    if (code := await process.wait()) not in (0, _PARTLY_DONE):
        if not lines:
            raise CalledProcessError(code, "petstore")
        raise _failed(msgspec.json.decode(lines[-1], type=dict[str, str]))
    if last.history_changed:
        raise DomainError(HISTORY_CHANGED)


def _failed(failure: dict[str, str]) -> DomainError:
    """The error for what the command reports."""
    if failure["code"] == "usage":
        return WrongField(failure.get("problem", failure["message"]), field_of(failure.get("option", "")))
    if failure["code"] == AccountNotFound.code:  # without the command that lists them
        problem = failure["message"].partition(". `")[0]
        return WrongField(f"{problem}; choose one under “{FIELDS['account'][0]}”.", "account")
    return (UnreadableFile if failure["code"] == UnreadableFile.code else DomainError)(failure["message"])


def failure_of(error: BaseException) -> DomainError:
    """What operators see of an error of `run_import`."""
    if isinstance(error, DomainError):
        return error
    if isinstance(error, OSError):
        return DomainError(f"The import cannot be started: {error.strerror or error}.")
    if isinstance(error, CalledProcessError):
        _log.error("import process failed", extra={"exit_code": error.returncode})
        return DomainError(_ended_by(error.returncode))
    _log.error("import process failed", exc_info=error)
    return DomainError(_STOPPED)


def _ended_by(code: int) -> str:
    """What operators see if the process reported nothing and ended with this exit code (negative: the signal)."""
    if code == -signal.SIGKILL:
        how = "was killed by signal 9, probably because memory ran out. Free memory, then upload the file again."
    elif code < 0:
        how = f"was ended by signal {-code}. Upload the file again."
    else:
        how = f"ended with exit code {code}. Upload the file again; if that happens again, report it."
    return f"The import process {how} {_DONE}"
