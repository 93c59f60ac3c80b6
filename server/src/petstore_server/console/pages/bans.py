"""The keys with a ban in force."""

from starlette.responses import Response

from petstore_server.console.entry import Entry
from petstore_server.console.lists import page_number
from petstore_server.console.visit import Visit

PAGE_SIZE = 50


async def list_bans(visit: Visit) -> Response:
    """The banned keys, those whose ban ends last first, page by page."""
    form, number = visit.filters("name"), page_number(visit.query.get("page", ""))
    page = await visit.need(visit.store.keys.banned(visit.now, PAGE_SIZE, number, name=form.values["name"]))
    return visit.page("bans.html", form=form, page=page)


ENTRIES = (Entry("/bans", list_bans),)
