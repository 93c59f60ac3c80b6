"""What happened to one order: its own entries of the audit log, and the imports that created or changed it."""

import asyncio
from operator import attrgetter

from petstore_server.domain.audit import AuditEntry, AuditFilters
from petstore_server.domain.imports import IMPORT_ACTION
from petstore_server.domain.search import TrackedOrder, from_microseconds
from petstore_server.operations.audit import part_of_import
from petstore_server.store import Store

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
    return sorted(found, key=attrgetter("position"), reverse=True)
