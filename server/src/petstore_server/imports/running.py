"""Import a file of orders or pets: read and check it in batches, and commit each by itself, or do a dry run.

The store has a record of each run. It begins before the file is read, counts in the transaction of each batch, and
shows signs of life in between, so that every process sees whether the run goes on.
"""

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, suppress
from functools import cache, partial
from hashlib import blake2b
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from petstore_server.batching import in_halves
from petstore_server.domain.accounts import Account
from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import (
    AccountNotFound,
    Choice,
    DomainError,
    InvalidField,
    Remedy,
    ServiceUnavailable,
    StatementFailed,
    with_remedy,
)
from petstore_server.domain.imports import Rejected
from petstore_server.domain.orders import (
    INT64_MAX,
    INT64_MIN,
    MAX_ASSIGNED_ID,
    UNASSIGNED,
    ImportOutcome,
    Order,
    possible_references,
)
from petstore_server.domain.pets import Pet
from petstore_server.domain.texts import hide_keys
from petstore_server.imports.csv_rows import csv_fields, read_csv
from petstore_server.imports.files import Reject, Rejects, Row, Source, UnreadableFile, UnreadableRow
from petstore_server.imports.json_rows import json_array, json_fields, json_lines
from petstore_server.imports.kinds import ORDERS, RecordKind, Schema, T
from petstore_server.imports.lines import SORT, Named, OrderLines
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.seen import SeenRows
from petstore_server.store import Store
from petstore_server.store.imports import BEAT_SECONDS

FILE_CHANGED = (
    "The file was changed while it was read, so rows may be missing or cut off. Import it again once it is complete."
)
HISTORY_CHANGED = (
    "While the import ran, the store was restored, or the database restarted. Import the file again: that adds what "
    "is missing."
)
_MAX_GROUP_BYTES = 8 << 20  # whose rows are kept in memory at a time at most
_MAX_PREVIEW = 5
_MAX_FILE_NAME = 200  # characters of the file's name that are recorded
_LARGE = {
    "id": (MAX_ASSIGNED_ID, ("identifier", "identifiers"), "programs in JavaScript read them wrongly"),
    "quantity": (
        2**31 - 1,
        ("quantity", "quantities"),
        "generated programs in Go and Java cannot read lists with them",
    ),
}
"""The greatest values of fields that all programs of partners read rightly, and what happens with greater ones."""
_MAX_LEFT = 50
_NAMING = ("account", "reference")
_AS_CSV = Remedy("export the orders as CSV, or {} for each field of the JSON records", (Choice("map", "NAME=FIELD"),))
Item = TypeVar("Item")


class Batch(NamedTuple, Generic[T]):
    """Records that can be stored together, and the rows next to them that were rejected.

    `rows` returns the rows of the records; `position` is the bytes of the file handled after this batch. `repeated` has
    the places of records that the file has had before, each with the line of the first, and
    `ended` the references that the next lines of orders would have, if these had more.
    """

    records: list[T]
    rejects: list[Reject]
    rows: Callable[[], list[Row]]
    position: int
    repeated: Mapping[int, int] = {}
    ended: Sequence[Named] = ()
    by_reference: bool = False  # whether a record has no identifier


_READERS = {"jsonl": (json_lines, json_fields), "json": (json_array, json_fields), "csv": (read_csv, csv_fields)}
"""For each format, what reads a file in parts, and what reads a row."""


def read_batches(source: Source, schema: Schema[T], options: ReadOptions) -> Iterator[Batch[T]]:
    """The records of the file in batches. Raises UnreadableFile if the file as a whole cannot be read."""
    text = source.text(options.encoding)
    file_format = source.format(options.file_format)
    if options.shop is not None and file_format != "csv":
        raise UnreadableFile("The known exports of shops are CSV, and the file is JSON.", _AS_CSV)
    parts_of, fields_of = _READERS[file_format]
    parts = read_csv(text, schema, source.may_be_cut) if parts_of is read_csv else parts_of(text, schema)
    lines: OrderLines | None = None
    with closing(SeenRows()) as seen:
        for part in parts:
            if lines is None and schema.options.split_lines:  # which the shop of the header may have said
                lines = OrderLines(options.account)
            position = int(source.position * part.share)
            if part.records is None:
                yield _checked(part.rows(), fields_of, schema, position, seen, lines)
            else:
                repeated = seen.add([record.id for record in part.records], part.lines())
                yield Batch(part.records, [], part.rows, position, repeated)
    if lines is not None:
        yield Batch([], [], list, source.position, ended=lines.ended(0))


def _checked(
    rows: list[Row],
    fields_of: Callable[[Row, Schema[T]], tuple[dict[str, Any], list[InvalidField]]],
    schema: Schema[T],
    position: int,
    seen: SeenRows,
    lines: OrderLines | None,
) -> Batch[T]:
    records: list[T] = []
    accepted: list[Row] = []
    rejects: list[Reject] = []
    known = list[tuple[int, int, int]]()  # identifiers with the lines and places of their rows
    for row in rows:
        try:
            fields, faults = fields_of(row, schema)
        except (UnreadableRow, InvalidField) as error:
            rejects.append(row.reject(error))
            continue
        if lines is not None:
            fields = lines.order(fields, faults)
        record = schema.build(fields, faults)
        if record is not None:
            known.append((_key(record), row.line, len(records)))
            records.append(record)
            accepted.append(row)
            continue
        rejects.append(row.reject(*faults))
        if type(number := fields.get("id")) is int and INT64_MIN <= number <= INT64_MAX:
            known.append((number, row.line, -1))
    again = seen.add([number for number, _, _ in known], [line for _, line, _ in known])
    repeated = {known[at][2]: line for at, line in again.items() if known[at][2] >= 0}
    ended, by_reference = lines.ended() if lines else (), any(record.id == UNASSIGNED for record in records)
    return Batch(records, rejects, accepted.copy, position, repeated, ended, by_reference)


def _key(record: Order | Pet) -> int:
    """What is the same in two rows of one record: its identifier, or a digest of its owner and reference."""
    if record.id != UNASSIGNED or not isinstance(record, Order):
        return record.id
    name = f"{record.account or ''}\0{record.reference}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), signed=True)


class FileImport(Generic[T]):
    """One import of a file, whose name in the record is `file`.

    `replace_placed` and `assigned` are as for `Orders.import_batch`.
    """

    def __init__(
        self,
        kind: RecordKind[T],
        source: Source,
        options: ReadOptions,
        rejects: Rejects,
        replace_placed: bool = False,
        file: str = "",
        *,
        assigned: bool = False,
    ) -> None:
        self.import_id = f"import-{secrets.token_hex(6)}"  # under which the store records it
        self.file = hide_keys(file.encode("utf-8", "backslashreplace").decode())[-_MAX_FILE_NAME:]
        self.rejects = rejects
        self.position = 0
        self.preview = list[tuple[int, dict[str, Any]]]()  # of a dry run: lines and records as they would be stored
        self.history_changed = False  # of the store, while it ran: what was imported may be in it no more
        self.file_changed = False  # while it was read
        self.shop = options.shop
        self._kind = kind
        self._schema = Schema(kind, options)
        self._source = source
        self._batches = read_batches(source, self._schema, options)
        self._rules = {
            "replace_placed": replace_placed,
            "assigned": assigned,
            "update_only": options.update_only,
            "correct_shipped": options.correct_shipped,
        }
        self.left = list[str]()  # references of lines that the file has no more, the first ones
        self._by_reference = False  # whether a row had only a reference
        self._large = dict.fromkeys(_LARGE, 0)
        self._accounts = dict[str, Account]()  # of the store, that a dry run has not copied
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
    def doubt(self) -> str | None:
        """What makes the outcome doubtful, at the end."""
        return HISTORY_CHANGED if self.history_changed else FILE_CHANGED if self.file_changed else None

    @property
    def imported(self) -> int:
        """Rows that are in the store as the file has them."""
        return sum(self._counts.values())

    @property
    def warnings(self) -> list[str]:
        """What programs of partners may read wrongly, in sentences."""
        return [_warning(count, *_LARGE[field]) for field, count in self._large.items() if count]

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
        Raises UnreadableFile, nearly always before anything was imported, and what the store raises.
        """
        before = await store.access_version()
        await self._require_account(store)
        async with AsyncExitStack() as stack:
            if scratch is None:
                await stack.enter_async_context(self._recorded(store, actor))
            else:
                self._accounts = {account.name: account for account in await store.accounts.list()}
            ahead = await stack.enter_async_context(aclosing(_read_ahead(self._batches)))
            async for batches in _groups(ahead, at_once):
                storing = asyncio.ensure_future(self._store(batches, store, scratch, actor()))
                try:
                    await asyncio.wait({storing})  # which a cancellation does not end
                except asyncio.CancelledError:  # a batch under way is committed, so it is counted too
                    await storing
                    raise
                storing.result()
                yield
            self.file_changed = self._source.has_changed()
            self.history_changed = before.history != (await store.access_version()).history

    async def _require_account(self, store: Store) -> None:
        """Raise AccountNotFound if there is no account with the name that is given for rows without one."""
        name = self._schema.options.account
        if name is not None and name not in [account.name for account in await store.accounts.list()]:
            raise AccountNotFound(name)

    @asynccontextmanager
    async def _recorded(self, store: Store, actor: Callable[[], Actor]) -> AsyncIterator[None]:
        """Keep the record of the run, from its beginning to its end."""
        kind = f"{self._kind.noun}s"
        await store.imports.note(kind, self.import_id, actor(), self.file)
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
                await store.imports.note(kind, self.import_id, actor(), self.file, state=state, error=error)

    async def _store(self, batches: Sequence[Batch[T]], store: Store, scratch: Store | None, actor: Actor) -> None:
        """Store the records of batches together, or in parts without those that the store refuses by themselves."""
        records = [record for batch in batches for record in batch.records]
        self._by_reference |= any(batch.by_reference for batch in batches)
        begins = accumulate((len(batch.records) for batch in batches), initial=0)
        of_batches = zip(begins, batches, strict=False)
        repeated = {begin + at: line for begin, batch in of_batches for at, line in batch.repeated.items()}
        rows = cache(lambda: list(chain.from_iterable(batch.rows() for batch in batches)))
        waiting = list(chain.from_iterable(batch.rejects for batch in batches))  # until they are in the record

        async def store_part(part: Sequence[int]) -> None:
            rejects: list[Reject] = []

            def rejected(outcomes: Sequence[ImportOutcome]) -> Rejected:
                refused = [] if self._counts.keys() >= {*outcomes} else list(zip(part, outcomes, strict=True))
                rejects[:] = waiting + [
                    rows()[at].reject(self._refusal(each, records[at], repeated.get(at)))
                    for at, each in refused
                    if each not in self._counts
                ]
                rejects.sort(key=attrgetter("line"))
                return self.rejects.with_batch(rejects)

            run = {"import_id": self.import_id, "actor": actor, "file": self.file, "rejected": rejected}
            run["repeated"] = [place for place, at in enumerate(part) if at in repeated] if repeated else []
            outcomes = await self._import([records[at] for at in part], store, scratch, run)
            for outcome in self._counts:  # before the rejects, whose file may be on a full disk
                self._counts[outcome] += outcomes.count(outcome)
            self.rejects.add(rejects)
            waiting.clear()
            if scratch and len(self.preview) < _MAX_PREVIEW:
                stored = [(rows()[at].line, records[at], each) for at, each in zip(part, outcomes, strict=True)]
                await self._show([row for row in stored if row[2] in self._counts], scratch)

        def refuse(at: int, error: DomainError) -> None:
            waiting.append(rows()[at].reject(UnreadableRow(error.message)))

        await in_halves(store_part, range(len(records)), refuse, (DomainError,))
        if waiting:
            await store_part([])
        await self._find_left([named for batch in batches for named in batch.ended], store)
        self.position = batches[-1].position

    async def _find_left(self, following: Sequence[Named], store: Store) -> None:
        """Note orders of the store that would be the next lines of orders of the file: they stay as they are."""
        wanted = {*following}
        while wanted and len(self.left) < _MAX_LEFT:
            found = [
                order
                for order in await store.orders.with_references(wanted)
                if (order.account, order.reference) in wanted
            ]
            names = sorted(order.reference or "" for order in found)
            self.left += names[: _MAX_LEFT - len(self.left)]
            wanted = {(order.account, _next_line(order.reference or "")) for order in found}

    async def _show(self, stored: Sequence[tuple[int, T, ImportOutcome]], scratch: Store) -> None:
        """Add rows of a dry run to the preview, without the identifiers that the store would assign."""
        shown = stored[: _MAX_PREVIEW - len(self.preview)]
        records = await self._identified([record for _, record, _ in shown], [scratch])
        found = {each.id: each for each in await self._kind.part(scratch).find_many(_numbers(records))}
        for (line, record, outcome), identified in zip(shown, records, strict=True):
            fields = found.get(identified.id, identified).fields()
            if record.id == UNASSIGNED and outcome is ImportOutcome.CREATED:
                del fields["id"]
            self.preview.append((line, fields))

    def _refusal(self, outcome: ImportOutcome, record: T, line: int | None) -> UnreadableRow:
        """Why the store does not take a record; `line` is the earlier one that has it too."""
        again = SORT if self._schema.options.split_lines else self._schema.repeated
        if outcome is ImportOutcome.REPEATED:
            if line is None:  # another row of the batch
                return UnreadableRow("The order is also in an earlier line.", remedy=again)
            name = record.reference if isinstance(record, Order) and record.id == UNASSIGNED else record.id
            message = f"{self._kind.noun.capitalize()} {name} is also in line {line}."
            problem = f"The {self._kind.noun} is also in an earlier line."
            return UnreadableRow(message, problem, again)
        if outcome is ImportOutcome.TAKEN and record.id == UNASSIGNED:
            return UnreadableRow("The order is also in an earlier line.", remedy=again)
        message, remedy = self._kind.refusals[outcome]
        return UnreadableRow(message, remedy=remedy)

    async def _import(
        self, records: list[T], store: Store, scratch: Store | None, run: dict[str, Any]
    ) -> list[ImportOutcome]:
        if self._by_reference:
            records = await self._identified(records, [scratch, store] if scratch else [store])
        records = await self._completed(records, store)
        if scratch:
            await self._copy(records, store, scratch, run["actor"])
        if self._kind is ORDERS:
            placed = await store.orders.placed(_numbers(records)) if scratch else ()
            run |= {**self._rules, "placed": placed, "by_reference": self._by_reference}
        outcomes: list[ImportOutcome] = await self._kind.part(scratch or store).import_batch(records, **run)
        if self._kind is ORDERS:
            self._note_large(records, outcomes)
        return outcomes

    def _note_large(self, records: Sequence[Any], outcomes: Sequence[ImportOutcome]) -> None:
        for field, (most, *_) in _LARGE.items():
            values = list(map(attrgetter(field), records))
            if max(filter(None, values), default=0) > most:
                large = [at for at, value in enumerate(values) if (value or 0) > most]
                self._large[field] += sum(outcomes[at] in self._counts for at in large)

    async def _identified(self, records: Sequence[Any], stores: Sequence[Store]) -> list[Any]:
        """The records, those that have only a reference under the identifier of the order with it, if there is one."""
        names = {(record.account, record.reference) for record in records if record.id == UNASSIGNED}
        if not names:
            return list(records)
        self._by_reference = True
        ids: dict[tuple[str | None, str | None], int] = {}
        for store in stores:
            found = await store.orders.with_references(names - ids.keys())
            for order in sorted(found, reverse=True):  # the first one counts
                ids[order.account, order.reference] = order.id
        return [
            record._replace(id=ids.get((record.account, record.reference), UNASSIGNED))
            if record.id == UNASSIGNED
            else record
            for record in records
        ]

    async def _completed(self, records: list[T], store: Store) -> list[T]:
        """The records, with the fields that the file has no column for as the store has them.

        Only another import may change these fields of a pending order meanwhile, and any other order is refused.
        """
        if not (missing := self._schema.missing):
            return records
        same = await self._kind.part(store).find_many(_numbers(records))
        kept = {each.id: {name: value for name, value in each.fields().items() if name in missing} for each in same}
        if self._rules["replace_placed"] and kept:  # these two are what names an order that was placed
            for placed in await store.orders.placed(list(kept)):
                kept[placed] = {name: value for name, value in kept[placed].items() if name not in _NAMING}
        return [self._kind.build(each.fields() | kept[each.id]) if kept.get(each.id) else each for each in records]

    async def _copy(self, records: list[Any], store: Store, scratch: Store, actor: Actor) -> None:
        """Copy what the records meet in the store into the scratch store, unless it has it."""
        part, ids = self._kind.part, _numbers(records)
        known, run = await part(scratch).find_many(ids), dict[str, Any](import_id="copied", actor=actor)
        found = _without(known, await part(store).find_many(ids))
        if self._kind is ORDERS:
            met = {order.id: order for order in (*known, *found)}
            same = await store.orders.with_references(possible_references(met, records))
            known = await scratch.orders.find_many([order.id for order in same])
            found += _without([*met.values(), *known], same)
            for name in {order.account for order in (*records, *found)} & self._accounts.keys():
                account = self._accounts.pop(name)
                await scratch.accounts.create(name, account.plan, account.limits, actor)
            run["as_stored"] = True
        if found:
            await part(scratch).import_batch(found, **run)


def _next_line(reference: str) -> str:
    number, _, line = reference.rpartition("/")
    return f"{number}/{int(line) + 1}"


def _numbers(records: Iterable[Order | Pet]) -> list[int]:
    """The identifiers of the records that have one."""
    return [record.id for record in records if record.id != UNASSIGNED]


def _without(known: Iterable[T], records: Iterable[T]) -> list[T]:
    """The records whose identifiers are not known."""
    ids = {record.id for record in known}
    return [record for record in records if record.id not in ids]


def _warning(count: int, most: int, names: tuple[str, str], effect: str) -> str:
    return f"{count:,} {names[count > 1]} {'are' if count > 1 else 'is'} above {most}; {effect}."


async def _beat(store: Store, import_id: str) -> None:
    """Show every few seconds that the run goes on, whatever it waits for."""
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        with suppress(ServiceUnavailable, StatementFailed):
            await store.imports.beat(import_id)


async def _groups(batches: AsyncIterator[Batch[T]], size: Callable[[], int]) -> AsyncGenerator[list[Batch[T]]]:
    """Yield batches in groups of at least `size()` rows, or of _MAX_GROUP_BYTES of the file."""
    group: list[Batch[T]] = []
    begin = 0
    async for batch in batches:
        group.append(batch)
        rows = sum(len(each.records) + len(each.rejects) for each in group)
        if rows >= size() or batch.position - begin >= _MAX_GROUP_BYTES:
            yield group
            group, begin = [], batch.position
    if group:
        yield group


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
