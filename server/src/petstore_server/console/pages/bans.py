"""The keys with a ban in force."""

from starlette.responses import Response

from petstore_server.console.entry import Entry, page_number, query_link
from petstore_server.console.forms import FormState
from petstore_server.console.visit import Visit

PAGE_SIZE = 50


async def list_bans(visit: Visit) -> Response:
    """The banned keys, those whose ban ends last first, page by page."""
    page = page_number(visit.query.get("page", ""))
    offset = (page - 1) * PAGE_SIZE
    name = visit.query.get("name", "").strip()
    given = {"name": name} if name else {}
    found = await visit.need(visit.store.keys.banned(visit.now, PAGE_SIZE, offset, name=name))
    return visit.page(
        "bans.html",
        form=FormState({"name": name}),
        keys=found.keys,
        total=found.total,
        strikes=visit.sources.settings.ban_strikes,
        previous_link=query_link(given, page=page - 1) if page > 1 else None,
        next_link=query_link(given, page=page + 1) if offset + len(found.keys) < found.total else None,
    )


ENTRIES = (Entry("/bans", list_bans),)
