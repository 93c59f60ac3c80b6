"""The audit log: who changed what, and when."""

from datetime import UTC, datetime
from math import isfinite
from urllib.parse import urlencode

from starlette.responses import Response

from petstore_server.console.changes import ACTIONS, change_of
from petstore_server.console.entry import Entry
from petstore_server.console.forms import FormState
from petstore_server.console.visit import Visit
from petstore_server.domain.audit import AuditFilters, AuditPage, AuditPosition
from petstore_server.domain.orders import is_int64
from petstore_server.domain.timestamps import parse_when
from petstore_server.operations.audit import actor_name

PAGE_SIZE = 50
_FILTERS = ("actor", "action", "subject", "since", "until")


async def audit(visit: Visit) -> Response:
    """The entries that match the filters, newest first, a page at a time."""
    form = FormState({name: visit.query.get(name, "").strip() for name in _FILTERS})
    since, until = (form.read(name, lambda text: _when(text, visit.now)) for name in ("since", "until"))
    page = AuditPage([], None)
    if form.is_right:
        filters = AuditFilters(
            actor=actor_name(form.values["actor"]) if form.values["actor"] else None,
            action=form.values["action"] or None,
            subjects=(_subject(form.values["subject"]),) if form.values["subject"] else (),
            since=since,
            until=until,
        )
        page = await visit.store.audit.page(filters, PAGE_SIZE, _position(visit.query.get("before", "")))
    given = {name: form.values[name] for name in _FILTERS if form.values[name]}
    return visit.page(
        "audit.html",
        200 if form.is_right else 400,
        form=form,
        changes=[change_of(entry) for entry in page.entries],
        actions=[("", "Any"), *((action, action) for action in ACTIONS)],
        filtered=bool(given),
        next_link="?" + urlencode({**given, "before": f"{page.next.at!r},{page.next.id}"}) if page.next else None,
        first_link="?" + urlencode(given) if visit.query.get("before") else None,
    )


def _subject(text: str) -> str:
    """A number means an order, `key_…` a key; anything else is taken as it is."""
    if text.removeprefix("-").isdigit():
        return f"order:{text}"
    return f"key:{text}" if text.startswith("key_") else text


def _when(text: str, now: float) -> float | None:
    return parse_when(text, datetime.fromtimestamp(now, UTC), past=True).timestamp() if text else None


def _position(text: str) -> AuditPosition | None:
    """A position from a link of the console; an invalid one starts from the newest entry."""
    at, _, entry_id = text.partition(",")
    try:
        seconds = float(at)
    except ValueError:
        return None
    return AuditPosition(seconds, int(entry_id)) if isfinite(seconds) and is_int64(entry_id) else None


ENTRIES = (Entry("/audit", audit),)
