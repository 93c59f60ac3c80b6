"""Import a file of orders or pets: batch after batch, each committed by itself, or as a dry run."""

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from petstore_server.domain.audit import Actor
from petstore_server.domain.orders import Import
from petstore_server.imports.batches import Batch, read_batches
from petstore_server.imports.kinds import RecordKind, Records, T
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.rows import Reject, Rejects, UnreadableRow
from petstore_server.imports.source import Source
from petstore_server.store import Store

HISTORY_CHANGED = (
    "While the import ran, the store was restored, or the database restarted. Import the file again: that adds what "
    "is missing."
)
Item = TypeVar("Item")


class FileImport(Generic[T]):
    """One import of a file, and its state: counts by outcome, and the bytes of the file that were handled.

    `replace_placed` has it replace orders that were placed over the API.
    """

    def __init__(
        self, kind: RecordKind[T], source: Source, options: ReadOptions, rejects: Rejects, replace_placed: bool = False
    ) -> None:
        self.import_id = f"import-{secrets.token_hex(6)}"  # under which the audit log records it
        self.rejects = rejects
        self.position = 0
        self.history_changed = False  # while it ran: what was imported may be in the store no more
        self._kind = kind
        self._batches = read_batches(source, kind, options)
        self._replace_placed = replace_placed
        self._counts = {Import.CREATED: 0, Import.UNCHANGED: 0, Import.REPLACED: 0}

    @property
    def counts(self) -> dict[str, int]:
        """Rows by outcome; what a store refuses is rejected."""
        return {str(outcome): count for outcome, count in self._counts.items()} | {"rejected": self.rejects.count}

    @property
    def has_changes(self) -> bool:
        """Whether the store was changed, so that the audit log has the import."""
        return bool(self._counts[Import.CREATED] or self._counts[Import.REPLACED])

    @property
    def imported(self) -> int:
        """Rows that are in the store as the file has them."""
        return sum(self._counts.values())

    async def run(
        self, store: Store | None, actor: Actor, scratch: Store | None = None, at_once: Callable[[], int] = lambda: 1
    ) -> AsyncGenerator[None]:
        """Import every row; yield after each commit. Where it ends early or raises, the store has the rows counted.

        `at_once` is asked how many rows the next transaction should have; it has at least one batch.
        With `scratch`, an empty store, it is a dry run, which does not change `store`; None is one that does not exist.
        Afterwards `history_changed` says whether the store had another history at the end than at the beginning.
        Raises UnreadableFile, nearly always before anything was imported, and what the store raises.
        """
        existing = store or scratch
        assert existing is not None  # noqa: S101 - for the type checker: only a dry run can do without a store
        before = await existing.access_version()
        stored = self._kind.records(existing, self._replace_placed, None)
        copies = self._kind.records(scratch, self._replace_placed, existing) if scratch else None
        async with aclosing(_read_ahead(self._batches)) as ahead:
            async for batches in _groups(ahead, at_once):
                storing = asyncio.ensure_future(self._store(batches, stored, copies, actor))
                try:
                    await asyncio.shield(storing)
                except asyncio.CancelledError:  # a batch under way is committed, so it is counted too
                    await storing
                    raise
                yield
        self.history_changed = before.history != (await existing.access_version()).history

    async def _store(
        self, batches: Sequence[Batch[T]], stored: Records[T], copies: Records[T] | None, actor: Actor
    ) -> None:
        records: list[T] = []
        for batch in batches:
            records += await self._completed(batch.records, batch.missing, stored)
        if copies and records:
            await _copy(records, stored, copies, self.import_id, actor)
        outcomes = await (copies or stored).import_batch(records, self.import_id, actor) if records else []
        for outcome in self._counts:  # before the rejects, whose file may be on a full disk
            self._counts[outcome] += outcomes.count(outcome)
        of_records = iter(outcomes)
        for batch in batches:
            rejects = batch.rejects + self._refused(batch, [*islice(of_records, len(batch.records))])
            for rejected in sorted(rejects, key=lambda rejected: rejected.line):
                self.rejects.add(rejected)
        self.position = batches[-1].position

    async def _completed(self, records: list[T], missing: frozenset[str], stored: Records[T]) -> list[T]:
        """The records, with the fields that the file has no column for as the store has them.

        Another program may change an order meanwhile. Only another import changes these fields of a pending order, and
        any other order is refused.
        """
        if not missing:
            return records
        found = {each.id: each.fields() for each in await stored.find_many([record.id for record in records])}
        kept = {id_: {name: fields[name] for name in missing & fields.keys()} for id_, fields in found.items()}
        return [self._kind.build(each.fields() | kept[each.id]) if kept.get(each.id) else each for each in records]

    def _refused(self, batch: Batch[T], outcomes: Sequence[Import]) -> list[Reject]:
        reasons = {outcome: UnreadableRow(reason) for outcome, reason in self._kind.refusals.items()}
        if reasons.keys().isdisjoint(outcomes):
            return []
        rows = zip(batch.rows(), outcomes, strict=True)
        return [row.reject(reasons[outcome]) for row, outcome in rows if outcome in reasons]


async def _groups(batches: AsyncIterator[Batch[T]], size: Callable[[], int]) -> AsyncGenerator[list[Batch[T]]]:
    """Yield batches in groups of at least so many rows."""
    group: list[Batch[T]] = []
    async for batch in batches:
        group.append(batch)
        if sum(len(each.records) + len(each.rejects) for each in group) >= size():
            yield group
            group = []
    if group:
        yield group


async def _copy(records: Sequence[T], stored: Records[T], copies: Records[T], import_id: str, actor: Actor) -> None:
    """Copy what the store has of the same records into the scratch store, unless that has them already.

    So rows with the same identifier, in whatever batch, have the outcome that they would have.
    """
    ids = [record.id for record in records]
    known = {record.id for record in await copies.find_many(ids)}
    if found := [record for record in await stored.find_many(ids) if record.id not in known]:
        await copies.import_batch(found, import_id, actor)


async def _read_ahead(items: Iterator[Item]) -> AsyncGenerator[Item]:
    """Yield the items, of which a thread reads the next one while the caller handles the last."""
    reading = _on_thread(partial(next, items, None))
    try:
        while (item := await reading) is not None:
            reading = _on_thread(partial(next, items, None))
            yield item
    finally:
        reading.cancel()


def _on_thread(call: Callable[[], Item]) -> asyncio.Future[Item]:
    """Start the call on a daemon thread: input that never comes (a terminal) does not keep the process from ending."""
    outcome = Future[Item]()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            outcome.set_exception(error)

    outcome.set_running_or_notify_cancel()  # a caller that gives up does not stop the thread
    threading.Thread(target=run, name="petstore-read-ahead", daemon=True).start()
    return asyncio.wrap_future(outcome)
