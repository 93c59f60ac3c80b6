"""Verdicts on imports, and what the audit log says of a change; the same for every engine."""

from collections.abc import Mapping, Sequence
from typing import Any

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import ApiKey
from petstore_server.domain.orders import Import, Order, judge_import
from petstore_server.domain.pets import Pet, judge_pet_import

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


def judge_orders(existing: Mapping[int, Order], orders: Sequence[Order]) -> tuple[list[Import], dict[int, Order]]:
    """The verdict on each order, one after another, and the orders that are to be written, by id."""
    verdicts: list[Import] = []
    changed: dict[int, Order] = {}
    for order in orders:
        verdict = judge_import(changed.get(order.id, existing.get(order.id)), order)
        if verdict in (Import.CREATED, Import.REPLACED):
            changed[order.id] = order
        verdicts.append(verdict)
    return verdicts, changed


def orders_entry(existing: Mapping[int, Order], changed: Mapping[int, Order], verdicts: Sequence[Import]) -> Entry:
    """What the audit log says of a batch: the counts, and before and after of each order that existed (D6)."""
    replaced = [order_id for order_id in changed if order_id in existing]
    if not replaced:
        return None, _counts(verdicts)
    before = {"orders": [existing[order_id].fields() for order_id in replaced]}
    return before, _counts(verdicts) | {"orders": [changed[order_id].fields() for order_id in replaced]}


def judge_pets(existing: Mapping[int, Pet], pets: Sequence[Pet]) -> tuple[list[Import], list[Pet]]:
    """The verdict on each pet, one after another, and the pets that are to be written."""
    known, verdicts = dict(existing), []
    for pet in pets:
        verdicts.append(judge_pet_import(known.get(pet.id), pet))
        known[pet.id] = pet
    return verdicts, [pet for pet in known.values() if pet != existing.get(pet.id)]


def pets_entry(existing: Mapping[int, Pet], changed: Sequence[Pet], verdicts: Sequence[Import]) -> Entry:
    """What the audit log says of a batch: the counts, and before and after of each pet that existed."""
    replaced = [pet for pet in changed if pet.id in existing]
    if not replaced:
        return None, _counts(verdicts)
    before = {"pets": [existing[pet.id].fields() for pet in replaced]}
    return before, _counts(verdicts) | {"pets": [pet.fields() for pet in replaced]}


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


def _counts(verdicts: Sequence[Import]) -> dict[str, Any]:
    return {str(verdict): verdicts.count(verdict) for verdict in Import if verdict in verdicts}
