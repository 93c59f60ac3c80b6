"""Taking the rows of a file into the store, batch by batch, and telling of each that was not taken."""

import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TextIO, TypeVar

import click

from petstore_server.cli.failures import PARTLY_DONE
from petstore_server.cli.output import log_to_stderr, wants_json, write_json
from petstore_server.cli.progress import progress
from petstore_server.cli.stores import operator, with_store
from petstore_server.domain.errors import InvalidField
from petstore_server.domain.orders import Import
from petstore_server.formats.csv_rows import Cell
from petstore_server.formats.reading import STDIN, Source, open_source
from petstore_server.formats.rows import Reject, Row, reject
from petstore_server.ports import Actor, Store

T = TypeVar("T")
_BATCH = 4000  # a commit of some 30 ms: no cancel waits long, and few disk flushes are needed
_SHOWN_REJECTS = 20

Take = Callable[[Sequence[T], str, Actor], Awaitable[list[Import]]]
"""Takes a batch into the store, under an import id."""


class Kind(NamedTuple, Generic[T]):
    """What is imported: its name for people, its columns, and how a record and a batch are taken."""

    plural: str
    cells: Mapping[str, Cell]
    build: Callable[[dict[str, Any]], T]
    take: Callable[[Store], Take[T]]
    refusal: str


class Rejects:
    """Where rejects go: a file of JSON Lines, or the first few to stderr."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self.count = 0

    def add(self, rejected: Reject) -> None:
        self.count += 1
        if self._file is not None:
            self._file.write(json.dumps(rejected._asdict(), ensure_ascii=False) + "\n")
        elif self.count <= _SHOWN_REJECTS and not wants_json():
            column = f", {rejected.column}" if rejected.column else ""
            log_to_stderr(f"line {rejected.line}{column}: {rejected.reason}")


class _Run(Generic[T]):
    """One import under way."""

    def __init__(self, kind: Kind[T], rejects: Rejects, import_id: str, actor: Actor) -> None:
        self._kind = kind
        self._rejects = rejects
        self._by = actor
        self.import_id = import_id
        self.counts = dict.fromkeys(Import, 0)

    async def take_all(self, store: Store, source: Source, file_format: str | None) -> None:
        """Take in every row, batch after batch.

        Reading does not overlap with the store's work: both would contend for the interpreter row by row, which
        takes half as long again as one after the other.
        """
        take = self._kind.take(store)
        with progress(f"Importing {self._kind.plural}", source.size) as advance:
            for batch in self._batches(source.rows(file_format, self._kind.cells)):
                await self._take(take, batch)
                advance(source.position)

    def _batches(self, rows: Iterable[Row | Reject]) -> Iterator[list[tuple[Row, T]]]:
        """Records with the rows they were built of; what is no record is rejected on the way."""
        build, batch = self._kind.build, []
        for row in rows:
            if isinstance(row, Reject):
                self._rejects.add(row)
                continue
            try:
                batch.append((row, build(row.fields)))
            except InvalidField as error:
                self._rejects.add(reject(row.line, error.field, error.message, row.raw))
                continue
            if len(batch) == _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    async def _take(self, take: Take[T], batch: list[tuple[Row, T]]) -> None:
        outcomes = await take([record for _, record in batch], self.import_id, self._by)
        for outcome in Import:
            self.counts[outcome] += outcomes.count(outcome)
        if Import.REJECTED in outcomes:
            for (row, _), outcome in zip(batch, outcomes, strict=True):
                if outcome is Import.REJECTED:
                    self._rejects.add(reject(row.line, None, self._kind.refusal, row.raw))


def import_file(kind: Kind[T], file: str, file_format: str | None, rejects_file: str | None) -> None:
    """Import a file and tell what became of it; exits with PARTLY_DONE where rows were rejected."""
    with ExitStack() as stack:
        source = stack.enter_context(open_source(file))
        rejects = Rejects(stack.enter_context(_created(rejects_file, file)))
        run = _Run(kind, rejects, f"import-{secrets.token_hex(6)}", operator())
        try:
            with_store(lambda store: run.take_all(store, source, file_format), writes=True)
        except BaseException:
            _tell_of_a_stop(run, kind.plural)
            raise
    _sum_up(run, rejects, rejects_file)
    if rejects.count:
        click.get_current_context().exit(PARTLY_DONE)


@contextmanager
def _created(name: str | None, source: str) -> Iterator[TextIO | None]:
    """The rejects file, written line by line so that an interrupted import loses none of it."""
    if name is None:
        yield None
        return
    path = Path(name)
    if source != STDIN and path.exists() and path.samefile(source):
        raise click.BadParameter("is the file that is imported.", param_hint="--rejects")
    with path.open("w", encoding="utf-8", buffering=1, newline="\n") as file:
        yield file


def _tell_of_a_stop(run: _Run[Any], plural: str) -> None:
    done = sum(run.counts[outcome] for outcome in (Import.CREATED, Import.UNCHANGED, Import.REPLACED))
    if done:
        log_to_stderr(f"Stopped after {done} {plural}, which are kept; importing the file again takes in the rest.")


def _sum_up(run: _Run[Any], rejects: Rejects, rejects_file: str | None) -> None:
    counts = {str(outcome): count for outcome, count in run.counts.items()}
    counts[str(Import.REJECTED)] = rejects.count
    if wants_json():
        write_json({"import": run.import_id, **counts})
        return
    if rejects_file is None and rejects.count > _SHOWN_REJECTS:
        log_to_stderr(f"… and {rejects.count - _SHOWN_REJECTS} more; --rejects FILE writes them all.")
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    log_to_stderr(f"{run.import_id}: {told}.")
    if rejects_file is not None and rejects.count:
        log_to_stderr(f"The rejected rows and their reasons are in {rejects_file}.")
