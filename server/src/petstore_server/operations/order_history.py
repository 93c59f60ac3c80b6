"""What happened to one order: its own entries of the audit log, and the imports that created or changed it."""

from collections.abc import AsyncIterator
from operator import attrgetter
from typing import Any

from petstore_server.domain.audit import AuditEntry, AuditFilters
from petstore_server.domain.imports import IMPORT_ACTION
from petstore_server.store import Store


async def order_history(
    store: Store,
    order_id: int,
    filters: AuditFilters,
    *,
    newest_first: bool,
    most: int | None = None,
    batches: int | None = None,
) -> AsyncIterator[AuditEntry]:
    """Yield the order's entries within the times and by the actor of the filters.

    The entries of imports are reduced to the order: both states if it was changed, and neither if it was created. At
    most the last `most` of its own entries are read, and the last `batches` of imports, which are large; None: all.
    """
    own = filters._replace(subjects=(f"order:{order_id}",), about=())
    imports = filters._replace(action=IMPORT_ACTION, about=())
    entries = [entry async for entry in _last(store, own, most)]
    entries += [part async for entry in _last(store, imports, batches) if (part := _part_of_import(entry, order_id))]
    for entry in sorted(entries, key=attrgetter("position"), reverse=newest_first):
        yield entry


async def _last(store: Store, filters: AuditFilters, most: int | None) -> AsyncIterator[AuditEntry]:
    if most is not None:
        for entry in (await store.audit.page(filters, most)).entries:
            yield entry
        return
    async for entry in store.audit.entries(filters):
        yield entry


def _part_of_import(entry: AuditEntry, order_id: int) -> AuditEntry | None:
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
