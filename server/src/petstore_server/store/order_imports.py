"""Imported orders: which of a batch are created, replaced or refused, and what is written of them (D6, D21)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.errors import NoIdentifierLeft
from petstore_server.domain.imports import (
    ImportOutcome,
    Obstacle,
    audit_change,
    evaluate,
    evaluate_import,
    id_ranges,
    kept_of,
    possible_references,
    with_stored_fields,
)
from petstore_server.domain.lists import NO_OWNER
from petstore_server.domain.orders import MAX_ASSIGNED_ID, UNASSIGNED, Order
from petstore_server.store.engine import NO_KEYS, Dialect, Named
from petstore_server.store.imports import add_batch
from petstore_server.store.records import COLUMNS, WITH_IDS, changed_row, order_row, read_order
from petstore_server.store.references import References, find_references
from petstore_server.store.statements import OWNER_NAME, Query, Row, Work, marks

_FIND_ORIGINS = f"SELECT {COLUMNS}, {OWNER_NAME}, account_id, placed, imported {WITH_IDS}"
_BATCHES_OF = "SELECT id FROM petstore.import_batches WHERE import_id = %s AND id = ANY(%s::bigint[])"
_ID, _ACCOUNT = attrgetter("id"), attrgetter("account")  # several times as fast as a loop
_LAST_LOCKED = "SELECT last_order_id FROM petstore.clock WHERE one = 1 FOR UPDATE"


class ImportRule(NamedTuple):
    """What an import may do. `placed` are orders that count as placed over the API, and `missing` fields that are kept.

    New orders from `reserved_from` on, if that is greater than 1, can only be placed. The others are as for
    `Orders.import_batch`.
    """

    placed: Collection[int]
    reserved_from: int
    replace_placed: bool
    update_only: bool
    correct_shipped: bool
    missing: Collection[str]


@dataclass
class OrderImport:
    """Imports orders by a rule, one part of a batch after another.

    `first_assigned` is that of `Orders`, and `by_reference` as for `Orders.import_batch`. `obstacles` are the stored
    orders that stand against others, by the places of these in the whole batch.
    """

    dialect: Dialect
    import_id: str
    actor: Actor
    rule: ImportRule
    first_assigned: int
    by_reference: bool
    obstacles: dict[int, Obstacle] = field(default_factory=dict)
    _added: int = 0

    def add(self, orders: Sequence[Order], repeated: Collection[int]) -> Work[list[ImportOutcome]]:
        """Import these orders, and return the outcome of each; `repeated` are places among them."""
        rule, by_reference = self.rule, self.by_reference
        owners = yield from find_owners(orders)
        # Other imports of these references end first, and requests that use them.
        references = {
            _named(order, owners)
            for order in orders
            if order.reference is not None and (order.account in owners or order.id == UNASSIGNED)
        }
        yield from self.dialect.wait_for_references(sorted(references))
        unassigned, waiting, ambiguous = set[int](), NO_KEYS.busy_references, dict[int, Obstacle]()
        if by_reference:
            orders, waiting, ambiguous = yield from self._with_known_ids(orders, owners)
            without_id = {place for place, order in enumerate(orders) if order.id == UNASSIGNED}
            unassigned = without_id.difference(ambiguous)
        rows = yield from _locked_rows(sorted({*map(_ID, orders)} - {UNASSIGNED}))
        own = (yield from self._written_before(rows)) if by_reference else ()
        existing = {row[2]: read_order(*row[:5]) for row in rows}
        placed = {*rule.placed, *(row[2] for row in rows if row[6])}
        kept = existing, rule.missing, placed if rule.replace_placed else ()
        orders = with_stored_fields(orders, *kept)
        if unassigned:  # rows may name one new order, by the owner and reference just completed
            orders = yield from self._with_new_ids(orders, sorted(unassigned))
            orders = with_stored_fields(orders, *kept)
        owners |= {row[4]: row[5] for row in rows if row[5] is not None}
        if by_reference:  # the same order may be named by its identifier and by its reference
            named = [place for place, order in enumerate(orders) if order.account is None or order.account in owners]
            repeated = {*repeated, *_again(orders, named, unassigned)}.difference(ambiguous)
        found = NO_KEYS
        if owners:
            possible = possible_references(existing, orders)
            wanted = {(owners[name], reference) for name, reference in possible if name in owners}
            found = yield from find_references(self.dialect, wanted)
        assigned = {orders[place].id for place in unassigned}
        batch = _Batch(rule, owners, References(found), placed, assigned, own, waiting)
        any_new = not (by_reference or any(map(_ACCOUNT, orders)) or rule.update_only) and rule.reserved_from == 1
        outcomes, changed = evaluate(orders, existing, batch, batch.completed, any_new=any_new, repeated=repeated)
        if batch.obstacles:
            places = {order.id: at for at, order in enumerate(orders) if at not in repeated}
            ambiguous |= {places[order_id]: each for order_id, each in batch.obstacles.items()}
        self.obstacles |= {self._added + place: each for place, each in ambiguous.items()}
        self._added += len(orders)
        if changed:
            yield from self._write(rows, existing, changed, owners, outcomes)
        return outcomes

    def _write(
        self,
        rows: Sequence[Row],
        existing: Mapping[int, Order],
        changed: Mapping[int, Order],
        owners: Mapping[str | None, int],
        outcomes: Sequence[ImportOutcome],
    ) -> Work[None]:
        """Write the orders that were `changed`, and keep what the audit log shows of them."""
        created = sorted(changed.keys() - existing.keys())
        replaced = [order for order in changed.values() if order.id in existing] if existing else []
        before, after = audit_change("orders", existing, changed, outcomes)
        if created:
            after = {**(after or {}), "createdIds": id_ranges(created)}
        previous = {row[2]: row[7] for row in rows if row[2] in changed}
        number = yield from add_batch(self.import_id, self.actor, Change(before, after), previous)
        new = [order_row(order, owners.get(order.account)) for order in map(changed.__getitem__, created)]
        rewritten = [changed_row(existing[order.id], order, owners.get(order.account)) for order in replaced]
        yield from self.dialect.write_orders(rewritten, new, self.actor.at, number)

    def _with_known_ids(
        self, orders: Sequence[Order], owners: Mapping[str | None, int]
    ) -> Work[tuple[Sequence[Order], Collection[Named], dict[int, Obstacle]]]:
        """The orders; those that are UNASSIGNED under the identifier of the owner's order with their reference.

        Also the references that another transaction uses now, and by place the stored orders because of which others
        stay UNASSIGNED: several have the reference.
        """
        wanted = {place: _named(order, owners) for place, order in enumerate(orders) if order.id == UNASSIGNED}
        found = yield from find_references(self.dialect, {*wanted.values()})
        with_ids, ambiguous = list(orders), dict[int, Obstacle]()
        for place, name in wanted.items():
            order, first = orders[place], found.references.get(name, UNASSIGNED)
            if name in found.shared:
                ambiguous[place] = Obstacle(first, order.account, order.reference, found.shared[name])
            else:
                with_ids[place] = order._replace(id=first)
        return with_ids, found.busy_references, ambiguous

    def _with_new_ids(self, orders: Sequence[Order], places: Sequence[int]) -> Work[list[Order]]:
        """The orders; those at these places under new identifiers, one for each owner and reference."""
        [(last,)] = yield Query(_LAST_LOCKED)
        given = {(order.account, order.reference): order.id for order in orders if order.id != UNASSIGNED}
        names = {(orders[place].account, orders[place].reference): None for place in places}
        numbers = [order.id for order in orders if order.id != UNASSIGNED and order.id <= MAX_ASSIGNED_ID]
        first = max(last, self.first_assigned - 1, *numbers) + 1
        if first + len(names) - 1 > MAX_ASSIGNED_ID:
            raise NoIdentifierLeft
        ids = dict(zip(names, range(first, first + len(names)), strict=True)) | given
        with_ids = list(orders)
        for place in places:
            order = orders[place]
            with_ids[place] = order._replace(id=ids[order.account, order.reference])
        return with_ids

    def _written_before(self, rows: Sequence[Row]) -> Work[Collection[int]]:
        """Those of the orders that earlier batches of the import have written."""
        batches = yield Query(_BATCHES_OF, (self.import_id, [row[7] for row in rows if row[7] is not None]))
        return {row[2] for row in rows if (row[7],) in batches}


@dataclass
class _Batch:
    """Decides on each order of a batch, one after another.

    `owners` are accounts by name, `references` those that orders have, and `placed` orders that were placed. `assigned`
    are the identifiers of new orders without a number, `own` those that earlier batches have written, and `waiting` the
    references of new ones that another transaction uses. An order that is still UNASSIGNED has a reference of several.
    `obstacles` are the stored orders that stand against others, by the identifiers of these.
    """

    rule: ImportRule
    owners: Mapping[str | None, int]
    references: References
    placed: Collection[int]
    assigned: Collection[int]
    own: Collection[int]
    waiting: Collection[Named]
    obstacles: dict[int, Obstacle] = field(default_factory=dict)

    def completed(self, old: Order | None, incoming: Order) -> Order:
        return kept_of(old, incoming, self.rule.correct_shipped)

    def __call__(self, old: Order | None, incoming: Order) -> ImportOutcome:
        new = self.completed(old, incoming)
        outcome = self._refusal(old, new) or self._evaluated(old, incoming, new)
        if outcome is ImportOutcome.OTHER_OWNER and old is not None:
            self.obstacles[new.id] = Obstacle(old.id, old.account)
        if outcome in (ImportOutcome.CREATED, ImportOutcome.REPLACED) and not self._take_reference(old, new):
            return ImportOutcome.REFERENCE_IN_USE
        return outcome

    def _evaluated(self, old: Order | None, incoming: Order, new: Order) -> ImportOutcome:
        """The outcome whatever the reference; `new` is the incoming order with what is kept of the old one."""
        outcome = evaluate_import(old, new, new.id in self.placed, self.rule.correct_shipped)
        if outcome is ImportOutcome.PROTECTED and old is not None and self.rule.replace_placed:
            same = old.account == incoming.account and old.reference in (None, incoming.reference)
            return ImportOutcome.REPLACED if same else ImportOutcome.OTHER_PLACED
        return outcome

    def _take_reference(self, old: Order | None, new: Order) -> bool:
        """Note the reference that an order gets; whether it is free."""
        before = None if old is None else self._owned_reference(old)
        named = self._owned_reference(new)
        if named == before:
            return True  # what two orders have had since 1.0 stays
        if named in self.references.busy:
            return False
        first = self.references.move(new.id, before, named)
        if first != new.id:
            self.obstacles[new.id] = Obstacle(first, new.account, new.reference)
        return first == new.id

    def _refusal(self, old: Order | None, new: Order) -> ImportOutcome | None:
        """Why the order is not imported whatever it has, if there is a reason."""
        if new.account is not None and new.account not in self.owners:
            return ImportOutcome.UNKNOWN_ACCOUNT
        if new.id == UNASSIGNED:
            return ImportOutcome.AMBIGUOUS
        if new.id in self.own:
            return ImportOutcome.TAKEN
        if old is not None:
            return None
        if self.rule.update_only:
            return ImportOutcome.MISSING
        if new.id in self.assigned:
            return ImportOutcome.REFERENCE_IN_USE if _named(new, self.owners) in self.waiting else None
        return ImportOutcome.RESERVED if new.id >= self.rule.reserved_from > 1 else None

    def _owned_reference(self, order: Order) -> Named | None:
        """The owner that an import names and the reference, which no other order of this owner may have."""
        if order.account not in self.owners or order.reference is None:
            return None
        return self.owners[order.account], order.reference


def _again(orders: Sequence[Order], places: Iterable[int], unassigned: Collection[int]) -> Iterator[int]:
    """Those of the places whose order an earlier one has, unless both were without an identifier (`unassigned`)."""
    seen, new = set[int](), set[int]()
    for place in places:
        order_id, is_new = orders[place].id, place in unassigned
        if order_id in seen or (order_id in new and not is_new):
            yield place
        (new if is_new else seen).add(order_id)


def _locked_rows(ids: Sequence[int]) -> Work[list[Row]]:
    """Lock the orders that exist among these identifiers, which ascend; return them with their origins."""
    rows = yield Query(f"{_FIND_ORIGINS} ORDER BY id FOR UPDATE", (ids,))
    missing = sorted({*ids} - {row[2] for row in rows})
    if missing:
        # With the clock locked, none of them is placed or imported by another transaction any more.
        [(last,)] = yield Query(_LAST_LOCKED)
        rows += (yield Query(_FIND_ORIGINS, (missing,))) if missing[0] <= last or missing[-1] > MAX_ASSIGNED_ID else []
    return rows


def find_owners(orders: Sequence[Order]) -> Work[dict[str | None, int]]:
    """The ids of the accounts that these orders name, by name."""
    names = sorted({*map(_ACCOUNT, orders)} - {None})
    if not names:
        return {}
    return dict((yield Query(f"SELECT name, id FROM petstore.accounts WHERE name IN {marks(names)}", names)))


def _named(order: Order, owners: Mapping[str | None, int]) -> Named:
    """The owner of an order that has a reference, NO_OWNER for none or one that does not exist, and that."""
    return owners.get(order.account, NO_OWNER), order.reference or ""
