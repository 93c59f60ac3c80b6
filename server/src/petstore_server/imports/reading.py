"""Reading a file of orders or pets: in batches of records that can be stored together, by a thread that reads ahead."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import cache, partial
from hashlib import blake2b
from itertools import accumulate, chain
from typing import Any, Generic, NamedTuple, TypeVar

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.orders import INT64_MAX, INT64_MIN, UNASSIGNED, Order
from petstore_server.domain.pets import Pet
from petstore_server.domain.remedies import Choice, Remedy
from petstore_server.imports.csv_rows import csv_fields, read_csv
from petstore_server.imports.files import Source, UnreadableFile
from petstore_server.imports.json_rows import json_array, json_fields, json_lines
from petstore_server.imports.kinds import T
from petstore_server.imports.lines import Named, OrderLines
from petstore_server.imports.rejects import Fault, Reject, Row, UnreadableRow
from petstore_server.imports.schema import Schema
from petstore_server.imports.seen import SeenRows

_ROW_BITS = 32  # of the number of a row, below those of its line: several records may be on one line
_MAX_GROUP_BYTES = 8 << 20  # whose rows are kept in memory at a time at most
_AS_CSV = Remedy("export the orders as CSV, or {} for each field of the JSON records", (Choice("map", "NAME=FIELD"),))
Item = TypeVar("Item")


class Batch(NamedTuple, Generic[T]):
    """Records that can be stored together, and the rows next to them that were rejected.

    `rows` returns the rows of the records; `position` is the bytes of the file handled after this batch. `repeated` has
    the places of records that the file has had before, each with the line of the first, and `ended` the references that
    the next lines of orders would have, if these had more.
    """

    records: list[T]
    rejects: list[Reject]
    rows: Callable[[], list[Row]]
    position: int
    repeated: Mapping[int, int] = {}
    ended: Sequence[Named] = ()


_Fields = Callable[[Row, Schema[Any]], tuple[dict[str, Any], list[InvalidField]]]


def read_batches(source: Source, schema: Schema[T]) -> Iterator[Batch[T]]:
    """The records of the file in batches. Raises UnreadableFile if the file as a whole cannot be read."""
    options = schema.options
    text = source.text(options.encoding)
    file_format = source.format(options.file_format)
    fields_of: _Fields = csv_fields if file_format == "csv" else json_fields
    if file_format == "csv":
        parts = read_csv(text, schema, source.may_be_cut)
    elif options.shop is not None:
        raise UnreadableFile("The known exports of shops are CSV, and the file is JSON.", _AS_CSV)
    else:
        parts = (json_array if file_format == "json" else json_lines)(text, schema)
    lines: OrderLines | None = None
    with closing(_SeenLines()) as seen:
        for part in parts:
            if lines is None and schema.options.split_lines:  # which the shop of the header may have said
                lines = OrderLines(options.account)
            position = int(source.position * part.share)
            if part.records is None:
                yield _checked(part.rows(), fields_of, schema, position, seen, lines)
            else:
                repeated = seen.add([record.id for record in part.records], part.lines)
                yield Batch(part.records, [], part.rows, position, repeated)
    if lines is not None:
        yield Batch([], [], list, source.position, ended=lines.ended(0))


class _SeenLines(SeenRows):
    """The rows that a file had so far, of which several may be on one line."""

    _count = 0

    def add(self, keys: Sequence[int], lines: Sequence[int]) -> dict[int, int]:
        numbered = [line << _ROW_BITS | number for number, line in enumerate(lines, self._count)]
        self._count += len(numbered)
        return {place: first >> _ROW_BITS for place, first in super().add(keys, numbered).items()}


def _checked(
    rows: list[Row], fields_of: _Fields, schema: Schema[T], position: int, seen: _SeenLines, lines: OrderLines | None
) -> Batch[T]:
    records: list[T] = []
    accepted: list[Row] = []
    rejects: list[Reject] = []
    known = list[tuple[int, int, int]]()  # identifiers with the lines and places of their rows
    for row in rows:
        try:
            fields, faults = fields_of(row, schema)
        except UnreadableRow as error:
            rejects.append(row.reject(error.fault))
            if lines is not None:
                lines.order(error.fields, error.faults)  # which counts it
            continue
        if lines is not None:
            fields = lines.order(fields, faults)
        record = schema.build(fields, faults)
        if record is not None:
            known.append((_key(record), row.line, len(records)))
            records.append(record)
            accepted.append(row)
            continue
        rejects.append(row.reject(*map(Fault.of, faults)))
        if (key := _rejected_key(fields, faults, schema.options.account)) is not None:
            known.append((key, row.line, -1))
    again = seen.add([number for number, _, _ in known], [line for _, line, _ in known])
    repeated = {known[at][2]: line for at, line in again.items() if known[at][2] >= 0}
    return Batch(records, rejects, accepted.copy, position, repeated, lines.ended() if lines else ())


def _key(record: Order | Pet) -> int:
    """What is the same in two rows of one record: its identifier, or a digest of its owner and reference."""
    if record.id != UNASSIGNED or not isinstance(record, Order):
        return record.id
    return _key_of_name(record.account, record.reference)


def _key_of_name(account: str | None, reference: str | None) -> int:
    name = f"{account or ''}\0{reference}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), signed=True)


def _rejected_key(fields: Mapping[str, Any], faults: Iterable[InvalidField], account: str | None) -> int | None:
    """The key of a row that has faults; None if these leave open which record it is. `account` is that of the file."""
    if (number := fields.get("id")) is not None:
        return number if type(number) is int and INT64_MIN <= number <= INT64_MAX else None
    if fields.get("reference") is None or any(fault.field in ("id", "reference", "account") for fault in faults):
        return None
    return _key_of_name(fields.get("account") or account, fields["reference"])


async def groups(batches: AsyncIterator[Batch[T]], size: Callable[[], int]) -> AsyncGenerator[Batch[T]]:
    """Yield batches, joined into those of at least `size()` rows, or of _MAX_GROUP_BYTES of the file."""
    group: list[Batch[T]] = []
    begin = 0
    async for batch in batches:
        group.append(batch)
        rows = sum(len(each.records) + len(each.rejects) for each in group)
        if rows >= size() or batch.position - begin >= _MAX_GROUP_BYTES:
            yield _joined(group)
            group, begin = [], batch.position
    if group:
        yield _joined(group)


def _joined(batches: Sequence[Batch[T]]) -> Batch[T]:
    begins = list(accumulate((len(batch.records) for batch in batches), initial=0))
    return Batch(
        list(chain.from_iterable(batch.records for batch in batches)),
        [reject for batch in batches for reject in batch.rejects],
        cache(lambda: [row for batch in batches for row in batch.rows()]),
        batches[-1].position,
        {begins[at] + place: line for at, batch in enumerate(batches) for place, line in batch.repeated.items()},
        [named for batch in batches for named in batch.ended],
    )


async def read_ahead(items: Iterator[Item]) -> AsyncGenerator[Item]:
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
