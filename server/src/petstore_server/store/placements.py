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
        rows = [_placed_row(*each) for each in new.values()]
        placed = yield from dialect.place_orders(rows, first_assigned, now)
    known = _with_placed(found, new, placed)
    return [_outcome(request, known, new) for request in requests]


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


def _with_placed(
    found: PlacementKeys, new: Mapping[Named, PlacementRequest], placed: Sequence[tuple[int, int]]
) -> PlacementKeys:
    """What was found, and the keys and references of new orders; `placed` is empty if no identifiers were left."""
    keys, references = dict(found.keys), dict(found.references)
    for (key, (placement, _)), written in zip(new.items(), placed, strict=False):
        keys[key] = placement.digest, *written
        if placement.owned_reference is not None:
            references[placement.owned_reference] = written[0]
    return found._replace(keys=keys, references=references)


def _outcome(
    request: PlacementRequest, known: PlacementKeys, new: Mapping[Named, PlacementRequest]
) -> Placed | Exception:
    """The outcome of a request, by the keys and references that are `known` after all were placed."""
    placement = request[0]
    key, named = placement.identity, placement.owned_reference
    if key in known.busy_keys:
        return IdempotencyKeyInUse()
    if key in known.keys:
        digest, *written = known.keys[key]
        is_replayed = new.get(key) is not request
        if is_replayed and digest != placement.digest:
            return IdempotencyKeyReused()
        return placement.placed(*written, replayed=is_replayed)
    if named in known.busy_references:
        return TryAgain("another program is placing an order with this reference")
    if named is not None and named in known.references:
        return ReferenceInUse(known.references[named])
    return NoIdentifierLeft()


def _placed_row(placement: Placement, actor: Actor) -> Row:
    """The row for `Dialect.place_orders`."""
    order = placement.order(0)
    _, _, pet_id, _, ship_date, reference, record, _ = order_row(order)
    after = str(audit_row(actor, PLACE, "", Change(None, order.fields()))[-1])
    record, after = record.removeprefix(_NO_IDENTIFIER), after.removeprefix(_NO_IDENTIFIER)
    key = placement.account_id, placement.key, placement.digest
    return pet_id, ship_date, reference, record, *key, actor.at, actor.name, after
