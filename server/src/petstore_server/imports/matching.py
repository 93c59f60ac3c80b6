"""Which records of a store the records of a file are, and what a dry run copies of these."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, Generic

from petstore_server.domain.accounts import Account
from petstore_server.domain.audit import Actor
from petstore_server.domain.imports import possible_references, with_stored_fields
from petstore_server.domain.orders import UNASSIGNED, Order
from petstore_server.domain.pets import Pet
from petstore_server.imports.kinds import ORDERS, RecordKind, T
from petstore_server.imports.lines import Named
from petstore_server.store import Store

_MAX_PREVIEW = 5
_MAX_LEFT = 50


def numbers(records: Iterable[Order | Pet]) -> list[int]:
    """The identifiers of the records that have one."""
    return [number for number in map(attrgetter("id"), records) if number != UNASSIGNED]


async def identified(records: Sequence[Any], store: Store) -> list[Any]:
    """The records, those that have only a reference under the identifier of the order with it, if there is just one."""
    ids = defaultdict[Any, list[int]](list)
    for order in await store.orders.with_references(_names(records)):
        ids[order.account, order.reference].append(order.id)
    known = {name: found[0] for name, found in ids.items() if len(found) == 1}
    return [
        record._replace(id=known.get((record.account, record.reference), UNASSIGNED))
        if record.id == UNASSIGNED
        else record
        for record in records
    ]


def _names(records: Iterable[Any]) -> set[Named]:
    """The owners and references of the records that have only these."""
    return {(record.account, record.reference) for record in records if record.id == UNASSIGNED}


async def completed(
    kind: RecordKind[T], records: list[T], store: Store, missing: Collection[str], *, replace_placed: bool
) -> list[T]:
    """The records, with the fields that the file has no column for as the store has them, for a preview and warnings.

    They may change until the import locks the records, and then keeps what they are (`missing` of `import_batch`).
    """
    if not missing:
        return records
    stored = {each.id: each for each in await kind.part(store).find_many(numbers(records))}
    placed = await store.orders.placed(list(stored)) if replace_placed and stored else ()
    return list(with_stored_fields(records, stored, missing, placed))


async def find_left(store: Store, following: Iterable[Named], known: int) -> list[str]:
    """Orders of the store that would be the next lines of orders of a file: the first ones, `known` of which are."""
    left, wanted = list[str](), {*following}
    while wanted and known + len(left) < _MAX_LEFT:
        with_references = await store.orders.with_references(wanted)
        found = [order for order in with_references if (order.account, order.reference) in wanted]
        left += sorted(order.reference or "" for order in found)
        wanted = {(order.account, _next_line(order.reference or "")) for order in found}
    return left[: _MAX_LEFT - known]


def _next_line(reference: str) -> str:
    number, _, line = reference.rpartition("/")
    return f"{number}/{int(line) + 1}"


class DryRun(Generic[T]):
    """An import into `scratch`, an empty store, which has what the records meet in `store`, once they are copied.

    `preview` has the first lines and records as they would be stored.
    """

    def __init__(self, kind: RecordKind[T], store: Store, scratch: Store, accounts: Iterable[Account]) -> None:
        """`accounts` are those of `store`."""
        self.scratch = scratch
        self.preview = list[tuple[int, dict[str, Any]]]()
        self._kind = kind
        self._store = store
        self._accounts = {account.name: account for account in accounts}  # that are not copied yet

    @property
    def is_shown(self) -> bool:
        """Whether the preview is complete."""
        return len(self.preview) == _MAX_PREVIEW

    async def copy(self, records: list[Any], actor: Actor) -> None:
        """Copy what the records meet in the store, unless it was copied before."""
        part, ids = self._kind.part, numbers(records)
        known = await part(self.scratch).find_many(ids)
        found = _without(known, await part(self._store).find_many(ids))
        if self._kind is ORDERS:
            met = {order.id: order for order in (*known, *found)}
            same = await self._store.orders.with_references(possible_references(met, records))
            await self._copy_orders(records, [*found, *_without(met.values(), same)], actor)
        elif found:
            await part(self.scratch).import_batch(found, import_id="copied", actor=actor)

    async def copy_named(self, records: list[Any], actor: Actor) -> None:
        """Copy all orders with the references of records that have only these, unless they were copied before.

        Also the last order, so that new ones get numbers after it, none of which a later row may have.
        """
        orders = self._store.orders
        found = await orders.with_references(_names(records))
        last = await orders.find_many([await orders.last_identifier()])
        await self._copy_orders(records, [*found, *_without(found, last)], actor)

    async def _copy_orders(self, records: Iterable[Any], orders: Sequence[Order], actor: Actor) -> None:
        """Copy these orders, unless they were copied before, and the accounts that they and the records name."""
        read = {order.id: order for order in orders}  # an order that gets an owner between two reads is in both
        found = _without(await self.scratch.orders.find_many(list(read)), read.values())
        for name in {order.account for order in (*records, *found)} & self._accounts.keys():
            account = self._accounts.pop(name)
            await self.scratch.accounts.create(name, account.plan, account.limits, actor)
        if found:
            await self.scratch.orders.copy(found, actor.at)

    async def show(self, stored: Sequence[tuple[int, T]]) -> None:
        """Add rows to the preview, without the identifiers that the store would assign."""
        shown = stored[: _MAX_PREVIEW - len(self.preview)]
        same = await self._kind.part(self.scratch).find_many(numbers(record for _, record in shown))
        found = {each.id: each for each in same}
        for line, record in shown:
            fields = found.get(record.id, record).fields()
            if record.id == UNASSIGNED:
                del fields["id"]
            self.preview.append((line, fields))


def _without(known: Iterable[T], records: Iterable[T]) -> list[T]:
    """The records whose identifiers are not known."""
    ids = {record.id for record in known}
    return [record for record in records if record.id not in ids]
