"""What a query of listOrders asks for. The pages of a walk share all of it but their cursors, so it is read once."""

import re
from functools import lru_cache
from typing import NamedTuple

from petstore_server.api.v2.parameters import LIST_ORDERS, decoded
from petstore_server.domain.orders import Status
from petstore_server.domain.search import Filters, Sort, SortField, query_digest

PATH = "/v2/store/orders"

_KEPT = 256  # listings in memory, each with a query of up to 8 KB
_LAST_CURSOR = re.compile(rb"(?:(.*)&)?cursor=([A-Za-z0-9_-]{40})", re.DOTALL)  # as in every Link


class Listing(NamedTuple):
    """A list and the size of its pages.

    `cursor` is that of the query. Cursors are bound to `digest`. `next` is the request target of the next page, without
    the value of its cursor.
    """

    filters: Filters
    sort: Sort
    limit: int
    cursor: str | None
    digest: bytes
    next: bytes


def read_listing(query: bytes) -> tuple[Listing, str | None]:
    """The listing and the cursor in the query of a request. Raises InvalidParameter."""
    found = _LAST_CURSOR.fullmatch(query)
    if found is not None:
        listing = _listing(found[1] or b"")
        if listing.cursor is None:
            return listing, found[2].decode("ascii")
    listing = _listing(query)
    return listing, listing.cursor


@lru_cache(maxsize=_KEPT)
def _listing(query: bytes) -> Listing:
    values = LIST_ORDERS.read(query)
    filters = Filters(
        frozenset(map(Status, values["status"] or ())),
        values["petId"],
        values["complete"],
        values["shipDateFrom"],
        values["shipDateTo"],
        values["updatedFrom"],
    )
    name = values["sort"]
    sort = Sort(SortField(name.removeprefix("-")), name.startswith("-"))
    return Listing(filters, sort, values["limit"], values["cursor"], query_digest(filters, sort), _next(query))


def _next(query: bytes) -> bytes:
    kept = [pair for pair in query.split(b"&") if pair and decoded(pair.partition(b"=")[0]) != "cursor"]
    return b"%s?%s" % (PATH.encode(), b"&".join([*kept, b"cursor="]))
