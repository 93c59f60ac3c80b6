"""Runs an import in a separate process, so that it takes no time from the requests of this one.

The process reads an ImportTask from stdin and writes an ImportReport on each line of stdout. It stops after the batch
under way once stdin closes, so it never outlives the process that started it.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from petstore_server.formats.reading import unbuffered_stdin
from petstore_server.operations.import_tasks import ImportReport, ImportTask, run_task
from petstore_server.runtime import engines
from petstore_server.runtime.scratch import scratch_store
from petstore_server.settings import Settings, SettingsError, read_settings
from petstore_server.telemetry.logs import logging_to_stderr

_log = logging.getLogger(__name__)

_LONGEST_LINE = 1 << 20
_STOP_SECONDS = 30.0
_STOPPED = "The import ended unexpectedly; the log of the server says why. What it reported is in the store."


async def run_import(task: ImportTask, report: Callable[[ImportReport], None]) -> None:
    """Run the task in a separate process; `report` gets each report. Cancelling stops it after a batch.

    The last report is finished, also if the process fails. Raises OSError if it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        env={**os.environ, "TMPDIR": str(Path(task.rejects).parent)},  # of the scratch store
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches only the server
        limit=_LONGEST_LINE,
    )
    assert process.stdin is not None  # noqa: S101 - for the type checker: a pipe was requested
    process.stdin.write(msgspec.json.encode(task) + b"\n")
    reading = asyncio.ensure_future(_read_reports(process, report))
    try:
        await asyncio.shield(reading)
    finally:
        process.stdin.close()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(reading, _STOP_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _read_reports(process: asyncio.subprocess.Process, report: Callable[[ImportReport], None]) -> None:
    assert process.stdout is not None  # noqa: S101 - for the type checker: a pipe was requested
    latest = ImportReport()
    try:
        while line := await process.stdout.readline():
            latest = msgspec.json.decode(line, type=ImportReport)
            report(latest)
    except (ValueError, msgspec.MsgspecError) as error:
        _log.error("import process reported what cannot be read", exc_info=error)
    if not latest.finished:
        latest.finished, latest.error = True, _STOPPED
        report(latest)


def main() -> None:
    """Run the task that stdin names, until it has ended or stdin closes."""
    task = msgspec.json.decode(unbuffered_stdin().readline(), type=ImportTask)
    settings = replace(read_settings(os.environ), database_url=task.database_url)
    with logging_to_stderr(settings.log_level):
        asyncio.run(_run(task, settings))


async def _run(task: ImportTask, settings: Settings) -> None:
    running = asyncio.ensure_future(
        run_task(task, lambda: engines.opened_store(settings.database_url), scratch_store, _write_report)
    )
    threading.Thread(target=_stop_at_end, args=(asyncio.get_running_loop(), running), daemon=True).start()
    with suppress(asyncio.CancelledError):
        try:
            await running
        except SettingsError as error:
            _write_report(ImportReport(finished=True, error=str(error)))


def _write_report(report: ImportReport) -> None:
    with suppress(OSError):  # no process reads it any more
        os.write(sys.stdout.fileno(), msgspec.json.encode(report) + b"\n")


def _stop_at_end(loop: asyncio.AbstractEventLoop, running: asyncio.Task[None]) -> None:
    """Cancel the import when stdin closes."""
    unbuffered_stdin().read()
    with suppress(RuntimeError):  # it has ended already
        loop.call_soon_threadsafe(running.cancel)


if __name__ == "__main__":
    main()
