"""Verdicts on imports, and what the audit log says of a change; the same for every engine."""

from collections.abc import Mapping, Sequence
from typing import Any

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import ApiKey
from petstore_server.domain.orders import Import, Order, evaluate_import
from petstore_server.domain.pets import Pet, evaluate_pet_import

Entry = tuple[dict[str, Any] | None, dict[str, Any]]
"""Before and after."""


def difference(before: Order, after: Order) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that differ, as they were and as they are."""
    old, new = before.fields(), after.fields()
    differing = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return (
        {name: old[name] for name in differing if name in old},
        {name: new[name] for name in differing if name in new},
    )


def evaluate_orders(existing: Mapping[int, Order], orders: Sequence[Order]) -> tuple[list[Import], dict[int, Order]]:
    """The verdict on each order, one after another, and the orders that are to be written, by id."""
    decisions: list[Import] = []
    changed: dict[int, Order] = {}
    for order in orders:
        decision = evaluate_import(changed.get(order.id, existing.get(order.id)), order)
        if decision in (Import.CREATED, Import.REPLACED):
            changed[order.id] = order
        decisions.append(decision)
    return decisions, changed


def orders_entry(existing: Mapping[int, Order], changed: Mapping[int, Order], decisions: Sequence[Import]) -> Entry:
    """What the audit log says of a batch: the counts, and before and after of each order that existed (D6)."""
    replaced = [order_id for order_id in changed if order_id in existing]
    if not replaced:
        return None, _counts(decisions)
    before = {"orders": [existing[order_id].fields() for order_id in replaced]}
    return before, _counts(decisions) | {"orders": [changed[order_id].fields() for order_id in replaced]}


def evaluate_pets(existing: Mapping[int, Pet], pets: Sequence[Pet]) -> tuple[list[Import], list[Pet]]:
    """The verdict on each pet, one after another, and the pets that are to be written."""
    known, decisions = dict(existing), []
    for pet in pets:
        decisions.append(evaluate_pet_import(known.get(pet.id), pet))
        known[pet.id] = pet
    return decisions, [pet for pet in known.values() if pet != existing.get(pet.id)]


def pets_entry(existing: Mapping[int, Pet], changed: Sequence[Pet], decisions: Sequence[Import]) -> Entry:
    """What the audit log says of a batch: the counts, and before and after of each pet that existed."""
    replaced = [pet for pet in changed if pet.id in existing]
    if not replaced:
        return None, _counts(decisions)
    before = {"pets": [existing[pet.id].fields() for pet in replaced]}
    return before, _counts(decisions) | {"pets": [pet.fields() for pet in replaced]}


def plan_fields(plan: Plan, limits: Limits) -> dict[str, Any]:
    """What the audit log says of an account's plan."""
    return {"plan": str(plan), "per_minute": limits.per_minute, "per_day": limits.per_day}


def key_fields(key: ApiKey) -> dict[str, Any]:
    """What the audit log says of a new key: never the key or its digest."""
    return {
        "account": key.account,
        "environment": str(key.environment),
        "scopes": sorted(key.scopes),
        "note": key.note,
        "expires_at": key.expires_at,
    }


def _counts(decisions: Sequence[Import]) -> dict[str, Any]:
    return {str(decision): decisions.count(decision) for decision in Import if decision in decisions}
