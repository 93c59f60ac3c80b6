"""Imports of uploaded files: what is asked of the process that runs one, and what it reports."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from time import monotonic

import msgspec

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import DomainError, ServiceUnavailable
from petstore_server.domain.orders import Order
from petstore_server.formats.batches import read_batches
from petstore_server.formats.conversions import parse_timezone
from petstore_server.formats.kinds import ReadOptions
from petstore_server.formats.reading import Source
from petstore_server.formats.rejects import Rejects
from petstore_server.operations.imports import HISTORY_CHANGED, ORDERS, FileImport
from petstore_server.store import Store

_REPORT_SECONDS = 0.2
_MOST_REASONS = 20


class TaskOptions(msgspec.Struct, frozen=True):
    """How to read a file, as text that another process can parse: the options of `petstore orders import`."""

    file_format: str | None = None
    encoding: str | None = None
    zone: str | None = None
    date_format: str | None = None
    columns: dict[str, str] = {}
    ignored: frozenset[str] = frozenset()

    def parsed(self) -> ReadOptions:
        """The same for the reader. Raises ValueError for an unknown time zone."""
        zone = parse_timezone(self.zone) if self.zone else None
        return ReadOptions(self.file_format, self.encoding, zone, self.date_format, self.columns, self.ignored)


class ImportTask(msgspec.Struct, frozen=True):
    """An import of orders, or its dry run. `name` is the file's name where it was uploaded from.

    Rejected rows are written to `rejects`. `at` is in Unix seconds.
    """

    database_url: str
    file: str
    name: str
    rejects: str
    options: TaskOptions
    actor: str
    at: float
    dry_run: bool


class ImportReport(msgspec.Struct):
    """How far an import is: bytes of the file, and rows by outcome. The last report is `finished`.

    `reasons` says why rows were rejected, `error` why the import stopped.
    """

    position: int = 0
    counts: dict[str, int] = {}
    finished: bool = False
    import_id: str = ""
    reasons: list[str] = []
    error: str | None = None


OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


async def run_task(
    task: ImportTask, open_store: OpenStore, open_scratch: OpenStore, report: Callable[[ImportReport], None]
) -> None:
    """Run the import, and report several times a second, at last when it has ended for whatever reason."""
    with _opened(task) as (source, rejects):
        reported = 0.0

        def on_batch() -> None:
            nonlocal reported
            if monotonic() - reported >= _REPORT_SECONDS:
                reported = monotonic()
                report(_report(run, ImportReport()))

        run = FileImport(ORDERS, source, task.options.parsed(), rejects, on_batch)
        final = ImportReport(finished=True)
        try:
            await _run(run, task, open_store, open_scratch)
            final.error = HISTORY_CHANGED if run.history_changed else None
        except ServiceUnavailable as error:
            final.error = error.explanation
        except DomainError as error:
            final.error = error.message
        except OSError as error:
            final.error = f"A file could not be read or written: {error.strerror or error}."
        finally:
            final.reasons = list(rejects.summary(_MOST_REASONS))
            report(_report(run, final))


@contextmanager
def _opened(task: ImportTask) -> Iterator[tuple[Source, Rejects]]:
    path = Path(task.file)
    with path.open("rb") as file, Path(task.rejects).open("w", encoding="utf-8", newline="\n") as rejects:
        yield Source(file, task.name, path.stat().st_size), Rejects(rejects)


async def _run(run: FileImport[Order], task: ImportTask, open_store: OpenStore, open_scratch: OpenStore) -> None:
    actor = Actor(task.actor, task.at)
    async with open_store() as store:
        if not task.dry_run:
            await run.run(store, actor)
            return
        async with open_scratch() as scratch:
            await run.dry_run(store, scratch, actor)


def _report(run: FileImport[Order], report: ImportReport) -> ImportReport:
    report.position, report.import_id = run.position, run.import_id
    report.counts = {str(outcome): count for outcome, count in run.counts.items()}
    return report


def check_readable(file: Path, name: str, options: TaskOptions) -> None:
    """Read the beginning of the file. Raises UnreadableFile if it cannot be a file of orders."""
    with file.open("rb") as opened:
        source = Source(opened, name, file.stat().st_size)
        next(read_batches(source, ORDERS.kind, options.parsed()), None)
