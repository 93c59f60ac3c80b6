"""What happened to one order: its own entries of the audit log, and the imports that created or changed it."""

import asyncio
from typing import Any

from petstore_server.domain.imports import IMPORT_ACTION
from petstore_server.domain.search import TrackedOrder, from_microseconds
from petstore_server.ports import AuditEntry, AuditFilters, AuditPosition, Store

_MOST_BATCHES = 10  # entries of imports are large: one has thousands of orders
_LATER = 1.0  # seconds by which an entry may be younger than the change, as two clocks took their times


async def order_history(store: Store, order_id: int, order: TrackedOrder, limit: int) -> list[AuditEntry]:
    """Return the order's entries, newest first: at most `limit`, and those of imports.

    Of the imports, the last ten batches before the order's last change are examined. Their entries are reduced to the
    order: both states if it was changed, and neither if it was created.
    """
    until = from_microseconds(order.updated_at).timestamp() + _LATER
    own, imports = await asyncio.gather(
        store.audit.page(AuditFilters(subjects=(f"order:{order_id}",)), limit),
        store.audit.page(AuditFilters(action=IMPORT_ACTION, until=until), _MOST_BATCHES),
    )
    found = [*own.entries, *(reduced for entry in imports.entries if (reduced := part_of_import(entry, order_id)))]
    return sorted(found, key=lambda entry: AuditPosition(entry.at, entry.id), reverse=True)


def part_of_import(entry: AuditEntry, order_id: int) -> AuditEntry | None:
    """The entry of an imported batch, reduced to one order; None if the batch left the order as it was."""
    before, after = _fields(entry.before, order_id), _fields(entry.after, order_id)
    if after is not None:
        changed = {name for name in {**(before or {}), **after} if (before or {}).get(name) != after.get(name)}
        return entry._replace(before=_only(before, changed), after=_only(after, changed))
    ranges = (entry.after or {}).get("createdIds", ())
    return entry._replace(after={}) if any(first <= order_id <= last for first, last in ranges) else None


def _fields(values: dict[str, Any] | None, order_id: int) -> dict[str, Any] | None:
    orders = (values or {}).get("orders", ())
    return next((fields for fields in orders if fields["id"] == order_id), None)


def _only(fields: dict[str, Any] | None, names: set[str]) -> dict[str, Any] | None:
    return fields and {name: value for name, value in fields.items() if name in names}
