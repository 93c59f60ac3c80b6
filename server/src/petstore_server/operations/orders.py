"""Orders: list them, change one or several, and export them in a form that can be imported again."""

import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from itertools import islice

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import DomainError, ServiceUnavailable
from petstore_server.domain.lists import MAX_LIMIT, NO_OWNER, Filters, PageQuery, Sort
from petstore_server.domain.orders import INT64_MAX, ORDER_FIELDS, Order, text_member
from petstore_server.domain.transitions import Transition
from petstore_server.store import Store
from petstore_server.store.orders import Claimed

WITHOUT_OWNER = "-"  # what operators type in place of an account; no account has this name
_AT_ONCE = 100  # changes that share commits
_CLAIM_GAP_SECONDS = 0.02  # pause between batches, so that other programs can write
_ALL = Filters()
# Where a cell begins that spreadsheets take for a formula. In many countries they also divide cells at semicolons, of
# which the quotes around a reference then do not take care.
_FORMULA = re.compile(r'(?<![^;])(?=[\s"]*[=+\-@＝＋－＠])')
_CSV_HEAD = ",".join(ORDER_FIELDS).encode() + b"\n"


async def owner_named(store: Store, name: str) -> int | None:
    """The owner for `Filters`, by what an operator typed; an empty text means any. Raises AccountNotFound."""
    if name in ("", WITHOUT_OWNER):
        return NO_OWNER if name else None
    return (await store.accounts.find(name)).id


async def list_orders(store: Store, filters: Filters = _ALL, limit: int | None = None) -> AsyncGenerator[list[Order]]:
    """The orders of one snapshot that match, ascending by id, in batches; at most `limit`."""
    left = INT64_MAX if limit is None else limit
    found = store.orders.scan(filters, min(left, MAX_LIMIT))
    async with aclosing(found):
        async for batch in found:
            if batch:
                yield batch[:left]
            left -= len(batch)
            if left <= 0:
                return


async def ids_with_reference(store: Store, reference: str) -> list[int]:
    """The first two identifiers of orders with this reference, of any owner."""
    query = PageQuery(Filters(references=frozenset({reference})), Sort(), 2)
    return [order_id for *_, order_id, _, _ in (await store.search.page(query)).rows]


async def change_orders(
    store: Store, order_ids: Sequence[int], transition: Transition[Order], actor: Actor
) -> AsyncIterator[tuple[int, Order | DomainError]]:
    """Apply the transition to each order; yield its id with the order or its error.

    An error of the store is yielded after the other outcomes of its batch, once for each reason, and ends it.
    """
    import asyncio  # lists and exports start without it

    async def change(order_id: int) -> Order | DomainError:
        try:
            return await store.orders.change(order_id, transition, actor)
        except DomainError as error:
            return error

    rest = iter(order_ids)
    while batch := list(islice(rest, _AT_ONCE)):
        outcomes = await asyncio.gather(*map(change, batch))
        unusable: dict[str, tuple[int, DomainError]] = {}
        for order_id, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, ServiceUnavailable):
                unusable.setdefault(outcome.reason, (order_id, outcome))
            else:
                yield order_id, outcome
        for failed in unusable.values():
            yield failed
        if unusable:
            return


async def export_orders(store: Store, file_format: str, filters: Filters = _ALL) -> AsyncGenerator[tuple[bytes, int]]:
    """Yield the file, one snapshot in parts, each with the number of orders so far.

    The formats are those of imports; and for eyes, `spreadsheet` and `spreadsheet with BOM`, which are CSV too.
    Nothing is yielded before the first orders are read, so that an export that cannot begin writes nothing.
    """
    before, encode, between, end = _FORMATS[file_format]
    count = 0
    async with aclosing(store.orders.scan(filters)) as batches:
        async for orders in batches:
            if orders:
                count += len(orders)
                yield before + between.join(map(encode, orders)), count
                before = between
    yield (b"\n" if count else before) + end, count


async def claim_orders(store: Store, clock: Callable[[], float], after: int = 0) -> AsyncGenerator[Claimed]:
    """Set the owners of the orders that 1.0.0 placed, by identifiers above `after`; yield what each batch did.

    Interrupted, the next call goes on. Orders that other transactions have locked are left to it too.
    """
    import asyncio  # lists and exports start without it

    while (claimed := await store.orders.claim(after, clock())) != (0, after):
        yield claimed
        after = claimed.last
        await asyncio.sleep(_CLAIM_GAP_SECONDS)


def _json_record(order: Order) -> bytes:
    texts = text_member("reference", order.reference) + text_member("account", order.account)
    return f'{order.record()[:-1]},"status":"{order.status}"{texts}}}'.encode()


def _spreadsheet_row(order: Order) -> bytes:
    """A CSV row of which a spreadsheet takes no text for a formula: an apostrophe stands before what could be one."""
    return _csv_row(order._replace(reference=_as_text(order.reference), account=_as_text(order.account)))


def _as_text(text: str | None) -> str | None:
    return text and _FORMULA.sub("'", text)


def _csv_row(order: Order) -> bytes:
    """No cell but the reference needs quotes: they hold numbers, words, names and canonical timestamps."""
    complete = "" if order.complete is None else str(order.complete).lower()
    reference = order.reference
    if reference is not None and re.search('[",;]', reference):
        reference = '"' + reference.replace('"', '""') + '"'
    cells = (order.id, order.pet_id, order.quantity, order.ship_date, complete, order.status, reference, order.account)
    return ",".join("" if cell is None else str(cell) for cell in cells).encode()


_FORMATS: dict[str, tuple[bytes, Callable[[Order], bytes], bytes, bytes]] = {
    "jsonl": (b"", _json_record, b"\n", b""),
    "json": (b"[\n", _json_record, b",\n", b"]\n"),
    "csv": (_CSV_HEAD, _csv_row, b"\n", b""),
    "spreadsheet": (_CSV_HEAD, _spreadsheet_row, b"\n", b""),
    "spreadsheet with BOM": (BOM_UTF8 + _CSV_HEAD, _spreadsheet_row, b"\n", b""),
}
"""The beginning of a file, a record, the separator of records, and the end of the file."""
