"""Import a file of orders or pets: read and check it in batches, and commit each by itself, or do a dry run.

The store has a record of each run. It begins before the file is read, counts in the transaction of each batch, and
shows signs of life in between, so that every process sees whether the run goes on.
"""

import asyncio
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, suppress
from operator import attrgetter
from typing import Any, Generic

from petstore_server.batching import in_halves
from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import AccountNotFound, DomainError, ServiceUnavailable, StatementFailed
from petstore_server.domain.imports import IMPORTED, ImportOutcome, Obstacle, Rejected
from petstore_server.domain.orders import UNASSIGNED, Order
from petstore_server.domain.pets import Pet
from petstore_server.domain.remedies import Remedy, with_remedy
from petstore_server.domain.texts import hide_keys
from petstore_server.imports.files import Source
from petstore_server.imports.kinds import ORDERS, RecordKind, T, refused_by, unknown_account
from petstore_server.imports.lines import SORT
from petstore_server.imports.matching import DryRun, completed, find_left, identified, numbers
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.reading import Batch, groups, read_ahead, read_batches
from petstore_server.imports.rejects import Fault, Reject, Rejects
from petstore_server.imports.schema import Schema
from petstore_server.imports.seen import SeenRows
from petstore_server.imports.warnings import Warnings
from petstore_server.store import Store
from petstore_server.store.imports import BEAT_SECONDS

FILE_CHANGED = (
    "The file was changed while it was read, so rows may be missing or cut off. Import it again once it is complete."
)
HISTORY_CHANGED = (
    "While the import ran, the store was restored, or the database restarted. Import the file again: that adds what "
    "is missing."
)
_MAX_FILE_NAME = 200  # characters of the file's name that are recorded
_OF_OBSTACLES = (ImportOutcome.OTHER_OWNER, ImportOutcome.REFERENCE_IN_USE, ImportOutcome.AMBIGUOUS)


class FileImport(Generic[T]):
    """One import of a file, whose name in the record is `file`."""

    def __init__(
        self, kind: RecordKind[T], source: Source, options: ReadOptions, rejects: Rejects, file: str = ""
    ) -> None:
        self.import_id = f"import-{secrets.token_hex(6)}"  # under which the store records it
        file = hide_keys(file.encode("utf-8", "backslashreplace").decode())
        self.file = file.replace("\0", r"\x00")[-_MAX_FILE_NAME:]  # which PostgreSQL does not take
        self.rejects = rejects
        self.position = 0
        self.history_changed = False  # of the store, while it ran: what was imported may be in it no more
        self.file_changed = False  # while it was read
        self.left = list[str]()  # references of lines that the file has no more, the first ones
        self._kind = kind
        self.schema = Schema(kind, options)  # whose options the header of a shop's export completes
        self._source = source
        self._dry: DryRun[T] | None = None
        self._by_reference = False  # whether a row had only a reference
        self._rows = 0  # that the batches so far have
        self._known = SeenRows()  # their identifiers, also of stored orders that only references name
        self._warnings = Warnings()
        self._without_accounts = False  # whether the store has no open account
        self._counts = dict.fromkeys(IMPORTED, 0)

    @property
    def counts(self) -> dict[str, int]:
        """Rows by outcome; what a store refuses is rejected."""
        return {str(outcome): count for outcome, count in self._counts.items()} | {"rejected": self.rejects.count}

    @property
    def preview(self) -> list[tuple[int, dict[str, Any]]]:
        """Of a dry run: the first lines and records as they would be stored."""
        return self._dry.preview if self._dry else []

    @property
    def doubt(self) -> str | None:
        """What makes the outcome doubtful, at the end."""
        return HISTORY_CHANGED if self.history_changed else FILE_CHANGED if self.file_changed else None

    @property
    def imported(self) -> int:
        """Rows that are in the store as the file has them."""
        return sum(self._counts.values())

    @property
    def warnings(self) -> list[str]:
        """What programs of partners may read wrongly, and what may not be an order, in sentences."""
        encoding = self.schema.options.encoding if self._source.is_utf8 else None
        return list(self._warnings.texts(encoding, self.rejects.phrase, is_dry=self._dry is not None))

    async def run(
        self,
        store: Store,
        actor: Callable[[], Actor],
        scratch: Store | None = None,
        at_once: Callable[[], int] = lambda: 1,
    ) -> AsyncGenerator[None]:
        """Import every row; yield after each commit. Where it ends early or raises, the store has the rows counted.

        `actor` returns who imports, at this time. `at_once` is asked how many rows the next transaction should have; it
        has at least one batch. With `scratch`, an empty store, it is a dry run, which does not change `store`.
        Raises AccountNotFound for that of the options, UnreadableFile, nearly always before anything was imported, and
        what the store raises.
        """
        before, account = await store.access_version(), self.schema.options.account
        accounts = await store.accounts.list() if scratch or self._kind is ORDERS else ()
        open_ones = [each for each in accounts if each.closed_at is None]
        self._without_accounts = not open_ones
        self._warnings.restricts = any(each.orders is VisibleOrders.OWN for each in open_ones)
        if account not in (None, *(each.name for each in accounts)):
            raise AccountNotFound(account)
        async with AsyncExitStack() as stack:
            stack.enter_context(closing(self._known))
            if scratch is None:
                await stack.enter_async_context(self._recorded(store, actor))
            else:
                self._dry = DryRun(self._kind, store, scratch, accounts)
            batches = read_batches(self._source, self.schema)
            ahead = await stack.enter_async_context(aclosing(read_ahead(batches)))
            async for batch in groups(ahead, at_once):
                storing = asyncio.ensure_future(self._store(batch, store, actor()))
                try:
                    await asyncio.wait({storing})  # which a cancellation does not end
                except asyncio.CancelledError:  # a batch under way is committed, so it is counted too
                    await storing
                    raise
                storing.result()
                yield
            self.file_changed = self._source.has_changed()
            self.history_changed = before.history != (await store.access_version()).history

    @asynccontextmanager
    async def _recorded(self, store: Store, actor: Callable[[], Actor]) -> AsyncIterator[None]:
        """Keep the record of the run, from its beginning to its end."""
        kind = f"{self._kind.noun}s"
        await store.imports.set_state(kind, self.import_id, actor(), self.file)
        beating = asyncio.create_task(_beat(store, self.import_id))
        state, error = "interrupted", None
        try:
            yield
            state, error = ("failed", self.doubt) if self.doubt else ("finished", None)
        except Exception as failure:
            message = f"{type(failure).__name__}: {failure}"
            if isinstance(failure, DomainError):
                message = with_remedy(failure.explanation, failure.remedy, self.rejects.phrase)
            state, error = "failed", hide_keys(message)
            raise
        finally:
            beating.cancel()
            # If that fails, the run is not seen any more, which says the same.
            with suppress(ServiceUnavailable, StatementFailed):
                await store.imports.set_state(kind, self.import_id, actor(), self.file, state=state, error=error)

    async def _store(self, batch: Batch[T], store: Store, actor: Actor) -> None:
        """Store the records of a batch together, or in parts without those that the store refuses by themselves."""
        records, rows, repeated = batch.records, batch.rows, batch.repeated
        self._by_reference |= len(numbers(records)) < len(records)
        waiting = list(batch.rejects)  # until they are in the record

        async def store_part(part: Sequence[int]) -> None:
            rejects: list[Reject] = []

            def rejected(outcomes: Sequence[ImportOutcome], obstacles: Mapping[int, Obstacle]) -> Rejected:
                rejects[:] = waiting
                if not self._counts.keys() >= {*outcomes}:
                    rejects.extend(
                        rows()[at].reject(self._refusal(batch, at, outcome, obstacles.get(place)))
                        for place, (at, outcome) in enumerate(zip(part, outcomes, strict=True))
                        if outcome not in self._counts
                    )
                rejects.sort(key=attrgetter("line"))
                return self.rejects.with_batch(rejects)

            run = {"import_id": self.import_id, "actor": actor, "file": self.file, "rejected": rejected}
            given = await self._identified([records[at] for at in part], store, actor)
            again = self._named_before(given, part)
            if repeated or again:
                run["repeated"] = [place for place, at in enumerate(part) if at in repeated or place in again]
            outcomes = await self._import(given, store, run)
            # Before the rejects, whose file may be on a full disk.
            self._count(given, outcomes, lambda place: rows()[part[place]].line)
            self.rejects.add(rejects)
            waiting.clear()
            if self._dry and not self._dry.is_shown:
                stored = zip(part, given, outcomes, strict=True)
                await self._dry.show(
                    [(rows()[at].line, each) for at, each, outcome in stored if outcome in self._counts]
                )

        def refuse(at: int, error: DomainError) -> None:
            waiting.append(rows()[at].reject(Fault(error.message)))

        await in_halves(store_part, range(len(records)), refuse, (DomainError,))
        if waiting:
            await store_part([])
        self._rows += len(records)
        self.left += await find_left(store, batch.ended, len(self.left))
        self.position = batch.position

    def _refusal(self, batch: Batch[T], at: int, outcome: ImportOutcome, obstacle: Obstacle | None) -> Fault:
        """Why the store does not take the record at this place of the batch."""
        record, line = batch.records[at], batch.repeated.get(at)
        if obstacle is not None and outcome in _OF_OBSTACLES:
            return refused_by(outcome, obstacle, split_lines=bool(self.schema.options.split_lines))
        if outcome is ImportOutcome.UNKNOWN_ACCOUNT and isinstance(record, Order) and record.account is not None:
            return unknown_account(record.account, self.schema.account_column if self._without_accounts else None)
        if outcome is ImportOutcome.REPEATED and line is not None:
            return self._repeated(batch, at, line)
        if outcome is ImportOutcome.REPEATED or (outcome is ImportOutcome.TAKEN and record.id == UNASSIGNED):
            return Fault("The order is also in an earlier line.", self._again)
        return self._kind.refusals[outcome]

    def _repeated(self, batch: Batch[T], at: int, line: int) -> Fault:
        """Why the record at this place of the batch is refused, which is in an earlier line too."""
        record, rows = batch.records[at], batch.rows()
        place = bisect_left(rows, line, key=attrgetter("line"))  # at 0 too if it is in an earlier batch
        if rows[place].line == line and _differ_in_account(batch.records[place], record):
            problem, lines = "Two rows of the order have different accounts.", f"Lines {line} and {rows[at].line}"
            return Fault(f"{lines} have different accounts for order {record.id}; keep one.", problem=problem)
        name = record.reference if isinstance(record, Order) and record.id == UNASSIGNED else record.id
        problem = f"The {self._kind.noun} is also in an earlier line."
        return Fault(f"{self._kind.noun.capitalize()} {name} is also in line {line}.", self._again, problem=problem)

    @property
    def _again(self) -> Remedy:
        """What to do about a second row of a record."""
        return SORT if self.schema.options.split_lines else self.schema.repeated

    def _count(self, given: list[T], outcomes: list[ImportOutcome], line: Callable[[int], int]) -> None:
        counted = Counter(outcomes)
        for outcome in self._counts:
            self._counts[outcome] += counted[outcome]
        if self._kind is ORDERS:
            self._warnings.count_given(given, outcomes, line)

    async def _identified(self, records: list[T], store: Store, actor: Actor) -> list[T]:
        if not self._by_reference:
            return records
        if self._dry:
            await self._dry.copy_named(records, actor)
        return await identified(records, self._dry.scratch if self._dry else store)

    def _named_before(self, records: Sequence[T], part: Sequence[int]) -> Collection[int]:
        """The places of records whose order an earlier row names, by its identifier or by its reference.

        `part` has the places of the records in the batch.
        """
        missing, split = self.schema.missing, self.schema.options.split_lines
        if self._kind is not ORDERS or "id" in missing or ("reference" in missing and not split):
            return ()  # all rows name theirs in the same way, and the reader finds those that are repeated
        places = [place for place, record in enumerate(records) if record.id != UNASSIGNED]
        again = self._known.add([records[place].id for place in places], [self._rows + part[place] for place in places])
        return {places[at] for at in again}

    async def _import(self, records: list[T], store: Store, run: dict[str, Any]) -> list[ImportOutcome]:
        dry, options = self._dry, self.schema.options
        run["missing"] = missing = self.schema.missing
        if dry or "quantity" in missing:  # for warnings of quantities
            records = await completed(self._kind, records, store, missing, replace_placed=options.replace_placed)
        if dry:
            await dry.copy(records, run["actor"])
        if self._kind is ORDERS:
            run |= {
                "replace_placed": options.replace_placed,
                "assigned": options.assigned,
                "update_only": options.update_only,
                "correct_shipped": options.correct_shipped,
                "placed": await store.orders.placed(numbers(records)) if dry else (),
                "by_reference": self._by_reference,
            }
        part = self._kind.part(dry.scratch if dry else store)
        outcomes: list[ImportOutcome] = await part.import_batch(records, **run)
        if self._kind is ORDERS:
            self._warnings.count_completed(records, outcomes)
        return outcomes


async def _beat(store: Store, import_id: str) -> None:
    """Show every few seconds that the run goes on, whatever it waits for."""
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        with suppress(ServiceUnavailable, StatementFailed):
            await store.imports.beat(import_id)


def _differ_in_account(one: Order | Pet, other: Order | Pet) -> bool:
    """Whether these are one order under two owners."""
    if not isinstance(one, Order) or not isinstance(other, Order):
        return False
    return one.account != other.account and one == other._replace(account=one.account)
