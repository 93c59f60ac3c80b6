"""Conflicts: what was changed meanwhile, by whom, and where to look."""

from starlette.responses import Response

from petstore_server.console.changes import ACTIONS
from petstore_server.console.lists import account_path
from petstore_server.console.rendering import duration
from petstore_server.console.visit import Part, Visit
from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.errors import Conflict, DomainError, OrderConflict

_SHOWN = 3


async def explain_conflict(visit: Visit, conflict: Conflict) -> Response:
    """The page that says what the last changes of the account or key were, and that nothing was changed now."""
    name, key = (visit.request.path_params.get(each) for each in ("name", "key"))
    subject = f"account:{name}" if name else f"key:{key}" if key else None
    filters = AuditFilters(subjects=(subject,)) if subject else None
    found = await visit.read(visit.store.audit.page(filters, _SHOWN)) if filters else None
    return visit.page(
        "conflict.html",
        409,
        text=conflict.message,
        changes=found.value.entries if found and found.value else (),
        back=account_path(name) if name else f"/keys/{key}" if key else None,
        subject=name or key,
    )


async def explain_order(visit: Visit, order_id: int, error: DomainError) -> Part:
    """A line about an order that was not changed: why, and who changed it last."""
    text = error.message
    if not isinstance(error, OrderConflict):
        return Part(text)
    found, _, _ = await visit.read(visit.store.audit.page(AuditFilters(subjects=(f"order:{order_id}",)), 1))
    for entry in found.entries if found is not None else ():
        actor = entry.actor.replace(":", " ", 1)
        text += f" {ACTIONS.get(entry.action, entry.action)}: {actor}, {duration(visit.now - entry.at)} ago."
    return Part(text, f"/orders/{order_id}")
