"""Import a file of orders or pets: read and check it in batches, and commit each by itself, or do a dry run.

The store has a record of each run. It begins before the file is read, counts in the transaction of each batch, and
shows signs of life in between, so that every process sees whether the run goes on.
"""

import asyncio
import secrets
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from operator import attrgetter
from typing import Any, Generic

from petstore_server.batching import in_halves
from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import AccountNotFound, DomainError, ServiceUnavailable, StatementFailed
from petstore_server.domain.imports import ImportOutcome, Obstacle, Rejected
from petstore_server.domain.orders import MAX_ASSIGNED_ID, UNASSIGNED, Order, Status
from petstore_server.domain.remedies import Choice, Remedy, with_remedy
from petstore_server.domain.texts import hide_keys
from petstore_server.imports.files import Source
from petstore_server.imports.kinds import (
    ORDERS,
    RecordKind,
    T,
    differ_in_account,
    refused_by,
    two_accounts,
    unknown_account,
)
from petstore_server.imports.lines import SORT
from petstore_server.imports.matching import DryRun, completed, find_left, identified, numbers
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.reading import Batch, groups, read_ahead, read_batches
from petstore_server.imports.rejects import Fault, Reject, Rejects
from petstore_server.imports.schema import Schema
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
_NAME_OWNERS = Remedy("{}, or a column account", (Choice("account", "NAME"),))
_NAME_OWNERS_LATER = Remedy(
    "to name owners, import a file of the columns id and account, and {}", (Choice("update_only"),)
)
_NO_OBSTACLES: Mapping[int, Obstacle] = {}
_OF_OBSTACLES = (ImportOutcome.OTHER_OWNER, ImportOutcome.REFERENCE_IN_USE, ImportOutcome.AMBIGUOUS)
_LARGE = {
    "id": (MAX_ASSIGNED_ID, "identifier", "identifiers", "programs in JavaScript read {} wrongly"),
    "quantity": (2**31 - 1, "quantity", "quantities", "generated programs in Go and Java cannot read lists with {}"),
}
"""The greatest values of fields that all programs of partners read rightly, and what happens with greater ones."""


class FileImport(Generic[T]):
    """One import of a file, whose name in the record is `file`."""

    def __init__(
        self, kind: RecordKind[T], source: Source, options: ReadOptions, rejects: Rejects, file: str = ""
    ) -> None:
        self.import_id = f"import-{secrets.token_hex(6)}"  # under which the store records it
        self.file = hide_keys(file.encode("utf-8", "backslashreplace").decode())[-_MAX_FILE_NAME:]
        self.rejects = rejects
        self.position = 0
        self.history_changed = False  # of the store, while it ran: what was imported may be in it no more
        self.file_changed = False  # while it was read
        self.shop = options.shop
        self.left = list[str]()  # references of lines that the file has no more, the first ones
        self._kind = kind
        self._options = options
        self._schema = Schema(kind, options)
        self._source = source
        self._batches = read_batches(source, self._schema, options)
        self._dry: DryRun[T] | None = None
        self._by_reference = False  # whether a row had only a reference
        self._large = dict.fromkeys(_LARGE, 0)
        self._returns = self._first_return = 0  # rows with a quantity below 1, not cancelled, and the line of the first
        self._without_accounts = False  # whether the store has no open account
        self._restricts = False  # whether an account sees its own orders only
        self._without_owner = 0  # orders that were created
        self._counts = dict.fromkeys((ImportOutcome.CREATED, ImportOutcome.UNCHANGED, ImportOutcome.REPLACED), 0)

    @property
    def counts(self) -> dict[str, int]:
        """Rows by outcome; what a store refuses is rejected."""
        return {str(outcome): count for outcome, count in self._counts.items()} | {"rejected": self.rejects.count}

    @property
    def of_shop(self) -> ReadOptions | None:
        """The options that the shop of the file stands for."""
        return self._schema.of_shop

    @property
    def statuses(self) -> list[str]:
        """The different texts that the file has as the status, the first ones."""
        return list(self._schema.statuses.found.values())

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
        large = [
            f"{count:,} {f'{many} are' if count > 1 else f'{one} is'} above {most}; "
            f"{effect.format('them' if count > 1 else 'it')}."
            for count, (most, one, many, effect) in zip(self._large.values(), _LARGE.values(), strict=True)
            if count
        ]
        in_utf8 = f"The file is valid UTF-8, and is read as {self._options.encoding}; leave out the encoding."
        large += [in_utf8] * self._source.is_utf8
        return large + _of_returns(self._returns, self._first_return) + self._of_owners()

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
        before, account = await store.access_version(), self._options.account
        accounts = await store.accounts.list() if scratch or self._kind is ORDERS else ()
        open_ones = [each for each in accounts if each.closed_at is None]
        self._without_accounts = not open_ones
        self._restricts = any(each.orders is VisibleOrders.OWN for each in open_ones)
        if account not in (None, *(each.name for each in accounts)):
            raise AccountNotFound(account)
        async with AsyncExitStack() as stack:
            if scratch is None:
                await stack.enter_async_context(self._recorded(store, actor))
            else:
                self._dry = DryRun(self._kind, store, scratch, accounts)
            ahead = await stack.enter_async_context(aclosing(read_ahead(self._batches)))
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
        self._by_reference |= batch.by_reference
        waiting = list(batch.rejects)  # until they are in the record

        async def store_part(part: Sequence[int]) -> None:
            rejects: list[Reject] = []

            def rejected(
                outcomes: Sequence[ImportOutcome], obstacles: Mapping[int, Obstacle] = _NO_OBSTACLES
            ) -> Rejected:
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
            run["repeated"] = [place for place, at in enumerate(part) if at in repeated] if repeated else []
            given = await self._identified([records[at] for at in part], store, actor)
            outcomes = await self._import(given, store, run)
            for outcome in self._counts:  # before the rejects, whose file may be on a full disk
                self._counts[outcome] += outcomes.count(outcome)
            self.rejects.add(rejects)
            waiting.clear()
            self._note_owners(given, outcomes)
            self._note_returns(given, outcomes, lambda place: rows()[part[place]].line)
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
        self.left += await find_left(store, batch.ended, len(self.left))
        self.position = batch.position

    def _refusal(self, batch: Batch[T], at: int, outcome: ImportOutcome, obstacle: Obstacle | None) -> Fault:
        """Why the store does not take the record at this place of the batch."""
        record, line = batch.records[at], batch.repeated.get(at)
        if obstacle is not None and outcome in _OF_OBSTACLES:
            return refused_by(outcome, obstacle, split_lines=bool(self._schema.options.split_lines))
        if outcome is ImportOutcome.UNKNOWN_ACCOUNT and isinstance(record, Order) and record.account is not None:
            return unknown_account(record.account, self._schema.account_column if self._without_accounts else None)
        if outcome is ImportOutcome.REPEATED and line is not None:
            return self._repeated(batch, at, line)
        if outcome is ImportOutcome.REPEATED or (outcome is ImportOutcome.TAKEN and record.id == UNASSIGNED):
            return Fault("The order is also in an earlier line.", self._again)
        return self._kind.refusals[outcome]

    def _repeated(self, batch: Batch[T], at: int, line: int) -> Fault:
        """Why the record at this place of the batch is refused, which is in an earlier line too."""
        record, rows = batch.records[at], batch.rows()
        place = bisect_left(rows, line, key=attrgetter("line"))  # at 0 too if it is in an earlier batch
        if rows[place].line == line and differ_in_account(batch.records[place], record):
            return two_accounts(record, line, rows[at].line)
        name = record.reference if isinstance(record, Order) and record.id == UNASSIGNED else record.id
        problem = f"The {self._kind.noun} is also in an earlier line."
        return Fault(f"{self._kind.noun.capitalize()} {name} is also in line {line}.", self._again, problem=problem)

    @property
    def _again(self) -> Remedy:
        """What to do about a second row of a record."""
        return SORT if self._schema.options.split_lines else self._schema.repeated

    async def _identified(self, records: list[T], store: Store, actor: Actor) -> list[T]:
        if not self._by_reference:
            return records
        if self._dry:
            await self._dry.copy_named(records, actor)
        return await identified(records, self._dry.scratch if self._dry else store)

    async def _import(self, records: list[T], store: Store, run: dict[str, Any]) -> list[ImportOutcome]:
        dry, options = self._dry, self._options
        missing = self._schema.missing
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
            self._note_large(records, outcomes)
        return outcomes

    def _note_owners(self, records: Sequence[Any], outcomes: Sequence[ImportOutcome]) -> None:
        if self._restricts and self._kind is ORDERS:
            created = (
                each for each, outcome in zip(records, outcomes, strict=True) if outcome is ImportOutcome.CREATED
            )
            self._without_owner += sum(each.account is None for each in created)

    def _of_owners(self) -> list[str]:
        """The warning of new orders without an owner, while accounts see their own orders only; none without such."""
        if not self._without_owner:
            return []
        have, them = (
            ("1 order has", "it") if self._without_owner == 1 else (f"{self._without_owner:,} orders have", "them")
        )
        problem = f"{have} no owner: accounts that see their own orders only do not see {them}."
        return [with_remedy(problem, _NAME_OWNERS if self._dry else _NAME_OWNERS_LATER, self.rejects.phrase)]

    def _note_returns(
        self, records: Sequence[Any], outcomes: Sequence[ImportOutcome], line: Callable[[int], int]
    ) -> None:
        given = [each.quantity for each in records if each.quantity is not None] if self._kind is ORDERS else []
        if min(given, default=1) >= 1:
            return
        low = [at for at, each in enumerate(records) if each.quantity is not None and each.quantity < 1]
        places = [at for at in low if records[at].status is not Status.CANCELLED and outcomes[at] in self._counts]
        if places and not self._returns:
            self._first_return = line(places[0])
        self._returns += len(places)

    def _note_large(self, records: Sequence[Any], outcomes: Sequence[ImportOutcome]) -> None:
        for field, (most, *_) in _LARGE.items():
            values = list(map(attrgetter(field), records))
            if max(filter(None, values), default=0) > most:
                large = [at for at, value in enumerate(values) if (value or 0) > most]
                self._large[field] += sum(outcomes[at] in self._counts for at in large)


def _of_returns(count: int, line: int) -> list[str]:
    """The warning of rows with a quantity below 1, the first of which is in this line; none without such rows."""
    if count < 2:
        return [
            f"1 row has a quantity below 1, in line {line}, and is imported; leave it out if it is a return."
        ] * count
    return [f"{count:,} rows have a quantity below 1, first in line {line}, and are imported; leave out returns."]


async def _beat(store: Store, import_id: str) -> None:
    """Show every few seconds that the run goes on, whatever it waits for."""
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        with suppress(ServiceUnavailable, StatementFailed):
            await store.imports.beat(import_id)
