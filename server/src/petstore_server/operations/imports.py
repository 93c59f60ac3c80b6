"""Import a file of orders or pets: batch after batch, each committed by itself, or as a dry run."""

import asyncio
import gc
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar

from petstore_server.domain.audit import Actor
from petstore_server.domain.orders import Import, Order
from petstore_server.domain.pets import Pet
from petstore_server.formats import kinds
from petstore_server.formats.batches import Batch, read_batches
from petstore_server.formats.kinds import ReadOptions, RecordKind
from petstore_server.formats.reading import Source
from petstore_server.formats.rejects import Rejects
from petstore_server.formats.rows import reject
from petstore_server.operations.read_ahead import read_ahead
from petstore_server.store import Store

_OBJECTS_PER_COLLECTION = 100_000


class Identified(Protocol):
    """A record with an identifier."""

    @property
    def id(self) -> int: ...


T = TypeVar("T", bound=Identified)


class Records(Protocol[T]):
    """The part of a store that holds one kind of record."""

    async def find_many(self, ids: Sequence[int]) -> list[T]:
        """The records that exist among these identifiers."""

    async def import_batch(self, records: Sequence[T], import_id: str, actor: Actor, /) -> list[Import]:
        """Import the records in one transaction; return the outcome of each."""


class Subject(NamedTuple, Generic[T]):
    """What can be imported: the kind of record, where a store holds it, and why a store refuses a record."""

    kind: RecordKind[T]
    records: Callable[[Store], Records[T]]
    refusal: str


ORDERS = Subject[Order](
    kinds.ORDERS,
    lambda store: store.orders,
    "The order is no longer pending in the store (it was shipped or cancelled) and differs from this row; "
    "it was not changed.",
)
PETS = Subject[Pet](kinds.PETS, lambda store: store.pets, "The pet was refused by the store.")


HISTORY_CHANGED = (
    "While the import ran, the store was restored, or the database restarted. Import the file again: that adds what "
    "is missing."
)


class FileImport(Generic[T]):
    """One import of a file, and its state: counts by outcome, and the bytes of the file that were handled.

    `on_batch` is called after each batch.
    """

    def __init__(
        self,
        subject: Subject[T],
        source: Source,
        options: ReadOptions,
        rejects: Rejects,
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self.import_id = f"import-{secrets.token_hex(6)}"  # under which the audit log records it
        self.rejects = rejects
        self.position = 0
        self.history_changed = False  # while it ran: what was imported may be in the store no more
        self._subject = subject
        self._source = source
        self._options = options
        self._on_batch = on_batch
        self._counts = dict.fromkeys(Import, 0)

    @property
    def counts(self) -> dict[Import, int]:
        """Rows by outcome."""
        return {**self._counts, Import.REJECTED: self.rejects.count}

    @property
    def has_changes(self) -> bool:
        """Whether the store was changed, so that the audit log has the import."""
        return bool(self._counts[Import.CREATED] or self._counts[Import.REPLACED])

    @property
    def imported(self) -> int:
        """Rows that are in the store as the file has them."""
        return sum(count for outcome, count in self._counts.items() if outcome is not Import.REJECTED)

    async def run(self, store: Store, actor: Actor) -> None:
        """Import every row. Where it raises, or is cancelled, the batches that were counted are in the store.

        Afterwards `history_changed` says whether the store had another history at the end than at the beginning.
        Raises UnreadableFile, nearly always before anything was imported, and what the store raises.
        """
        before = await store.access_version()
        await self._import(self._subject.records(store), actor)
        self.history_changed = before.history != (await store.access_version()).history

    async def dry_run(self, store: Store | None, scratch: Store, actor: Actor) -> None:
        """Find out what `run` would do, without changing the store; None stands for an empty one.

        `scratch` is an empty store, into which the file is imported instead.
        """
        records = self._subject.records
        await self._import(_DryRun(records(store) if store else None, records(scratch)), actor)

    async def _import(self, records: Records[T], actor: Actor) -> None:
        batches = read_batches(self._source, self._subject.kind, self._options)
        async with _rare_collections(), aclosing(read_ahead(batches)) as ahead:
            async for batch in ahead:
                storing = asyncio.ensure_future(self._store(records, batch, actor))
                try:
                    await asyncio.shield(storing)
                except asyncio.CancelledError:  # a batch under way is committed, so it is counted too
                    await storing
                    raise

    async def _store(self, records: Records[T], batch: Batch[T], actor: Actor) -> None:
        outcomes = await records.import_batch(batch.records, self.import_id, actor) if batch.records else []
        rejects = batch.rejects
        if Import.REJECTED in outcomes:
            refused = [row for row, outcome in zip(batch.rows(), outcomes, strict=True) if outcome is Import.REJECTED]
            rejects = rejects + [reject(row.line, None, self._subject.refusal, row.raw) for row in refused]
        for outcome in Import:  # before the rejects, whose file may be on a full disk
            self._counts[outcome] += outcomes.count(outcome)
        for rejected in sorted(rejects, key=lambda rejected: rejected.line):
            self.rejects.add(rejected)
        self.position = batch.position
        self._on_batch()


@asynccontextmanager
async def _rare_collections() -> AsyncIterator[None]:
    """Have Python look for unused reference cycles rarely: an import makes millions of objects, and no cycles.

    Otherwise the search takes a tenth of the import's processor time. One import runs in a process.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class _DryRun(Generic[T]):
    """Imports into a scratch store, after copying there what the real store has of the same records.

    So rows with the same identifier, in whatever batch, have the outcome that they would have.
    """

    def __init__(self, real: Records[T] | None, scratch: Records[T]) -> None:
        self._real = real
        self._scratch = scratch

    async def find_many(self, ids: Sequence[int]) -> list[T]:
        return await self._scratch.find_many(ids)

    async def import_batch(self, records: Sequence[T], import_id: str, actor: Actor, /) -> list[Import]:
        if self._real is not None:
            ids = [record.id for record in records]
            known = {record.id for record in await self._scratch.find_many(ids)}
            copies = [record for record in await self._real.find_many(ids) if record.id not in known]
            await self._scratch.import_batch(copies, import_id, actor)
        return await self._scratch.import_batch(records, import_id, actor)
