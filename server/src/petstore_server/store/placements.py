"""Placed orders, which share a commit: one for each idempotency key, under the next identifiers (D20)."""

from collections.abc import Mapping, Sequence

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.errors import IdempotencyKeyInUse, IdempotencyKeyReused, NoIdentifierLeft, ReferenceInUse
from petstore_server.domain.orders import PLACE
from petstore_server.domain.placements import KEY_LIFETIME, Placed, Placement
from petstore_server.store.audit import audit_row
from petstore_server.store.engine import Dialect, Named, PlacementKeys, TryAgain
from petstore_server.store.records import order_row
from petstore_server.store.statements import Row, Work

_NO_IDENTIFIER = '{"id":0'  # how the JSON of an order begins that has no identifier yet

PlacementRequest = tuple[Placement, Actor]


def place_all(
    dialect: Dialect, first_assigned: int, requests: Sequence[PlacementRequest]
) -> Work[list[Placed | Exception]]:
    """Place an order for each new key; return what was placed under each request's key, or the caller's error.

    `first_assigned` is that of `Orders`.
    """
    now = max(actor.at for _, actor in requests)
    keys = [placement.identity for placement, _ in requests]
    references = sorted({named for placement, _ in requests if (named := placement.owned_reference) is not None})
    found = yield from dialect.find_keys(keys, references, now - KEY_LIFETIME)
    new = _new_orders(requests, found)
    placed: Sequence[tuple[int, int]] = ()
    if new:
        placed = yield from dialect.place_orders([_placed_row(*each) for each in new.values()], first_assigned, now)
    assigned = dict(zip(new, placed, strict=False))  # by key: the identifier, and the time
    named_by = {placement.owned_reference: key for key, (placement, _) in new.items()}
    return [_outcome(request, found, new, assigned, named_by) for request in requests]


def _new_orders(requests: Sequence[PlacementRequest], found: PlacementKeys) -> dict[Named, PlacementRequest]:
    """The requests that place an order, by their idempotency keys: the first with each new key and new reference."""
    new: dict[Named, PlacementRequest] = {}
    taken: set[Named | None] = {*found.references, *found.busy_references}
    for request in requests:
        key, named = request[0].identity, request[0].owned_reference
        if not (key in found.busy_keys or key in found.keys or key in new or named in taken):
            new[key] = request
            taken.add(named)
            taken.discard(None)  # orders without a reference are all different
    return new


def _outcome(
    request: PlacementRequest,
    found: PlacementKeys,
    new: Mapping[Named, PlacementRequest],
    assigned: Mapping[Named, tuple[int, int]],
    named_by: Mapping[Named | None, Named],
) -> Placed | Exception:
    """The outcome of a request. `named_by` leads from the references of new orders to their keys."""
    placement = request[0]
    key, named = placement.identity, placement.owned_reference
    if key in found.busy_keys:
        return IdempotencyKeyInUse()
    if key not in found.keys and key not in new:
        return _reference_outcome(named, found, assigned.get(named_by.get(named, key)))
    digest, *placed = found.keys[key] if key in found.keys else (new[key][0].digest, *assigned.get(key, ()))
    if not placed:
        return NoIdentifierLeft()
    if digest != placement.digest:
        return IdempotencyKeyReused()
    return placement.placed(*placed, replayed=new.get(key) is not request)


def _reference_outcome(named: Named | None, found: PlacementKeys, placed: tuple[int, int] | None) -> Exception:
    """The outcome of a request whose reference another order has, or the one `placed` in the same batch."""
    if named in found.busy_references:
        return TryAgain("another program is placing an order with this reference")
    if named is not None and named in found.references:
        return ReferenceInUse(found.references[named])
    return NoIdentifierLeft() if placed is None else ReferenceInUse(placed[0])


def _placed_row(placement: Placement, actor: Actor) -> Row:
    """The row for `Dialect.place_orders`."""
    order = placement.order(0)
    _, _, pet_id, _, ship_date, reference, record = order_row(order)
    after = str(audit_row(actor, PLACE, "", Change(None, order.fields()))[-1])
    record, after = record.removeprefix(_NO_IDENTIFIER), after.removeprefix(_NO_IDENTIFIER)
    key = placement.account_id, placement.key, placement.digest
    return pet_id, ship_date, reference, record, *key, actor.at, actor.name, after
