"""The audit log: who changed what, and when."""

from starlette.responses import Response

from petstore_server.console.forms import parse_position, position_links
from petstore_server.console.sources import Reading
from petstore_server.console.visit import Visit
from petstore_server.domain.audit import AuditFilters, AuditPage, AuditPosition
from petstore_server.domain.errors import AccountNotFound
from petstore_server.domain.lists import MatchCount
from petstore_server.domain.orders import is_int64
from petstore_server.operations.audit import account_subjects, actor_name, order_entries

PAGE_SIZE = 50
COUNT_SECONDS = 0.3  # for which a page waits for the number of entries that match


async def audit(visit: Visit) -> Response:
    """The entries that match the filters, newest first, a page at a time."""
    form = visit.filters("actor", "action", "subject", "request", "since", "until", "by")
    since, until = (form.read(name, visit.when) for name in ("since", "until"))
    position = parse_position(visit.parameter("before"), AuditPosition)
    page, count = AuditPage([], None), Reading[MatchCount]()
    if not form.errors:
        subject = form["subject"]
        filters = AuditFilters(
            actor=actor_name(form["actor"]) if form["actor"] else None,
            action=form["action"] or None,
            since=since.timestamp() if since else None,
            until=until.timestamp() if until else None,
            request_id=form["request"] or None,
            actor_prefix="operator:" if form["by"] == "operators" else None,
        )
        if is_int64(subject):  # with imports of the order
            entries = order_entries(visit.store, int(subject), filters, PAGE_SIZE, position)
            page, number = await visit.require(entries)
            count = Reading(MatchCount(number, more=False))
        else:
            filters = filters._replace(subjects=await _subjects(visit, subject))
            page = await visit.require(visit.store.audit.page(filters, PAGE_SIZE, position))
            count = await visit.read(visit.store.audit.count(filters), COUNT_SECONDS)
    return visit.page(
        "audit.html",
        400 if form.errors else 200,
        form=form,
        changes=page.entries,
        count=count,
        **position_links(form.given, "before", position, page.next),
    )


async def _subjects(visit: Visit, text: str) -> tuple[str, ...]:
    """An account, which means also its own, the id of a key or webhook, or a subject as the log has it."""
    try:
        return await visit.require(account_subjects(visit.store, text.removeprefix("account:"))) if text else ()
    except AccountNotFound:
        kinds = {"key_": "key", "wh_": "webhook"}
        kind = next((kind for prefix, kind in kinds.items() if text.startswith(prefix)), "account")
        return text, f"{kind}:{text}"
