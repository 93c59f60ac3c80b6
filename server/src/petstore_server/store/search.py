"""Searching orders: pages and single orders of version 2, and counts."""

from collections.abc import Mapping

from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.lists import Count
from petstore_server.domain.orders import Status
from petstore_server.domain.search import Filters, Page, Query, TrackedOrder
from petstore_server.store import pages
from petstore_server.store.engine import Part

SHORT_PAGE = 200
"""Orders on a page that one index answers: on SQLite to read it takes less time than to pass it to a thread."""

_FIND = "SELECT record, status, updated_at, created_at FROM petstore.orders WHERE id = %s"
_COUNT_BY_STATUS = "SELECT status, count(*) FROM petstore.orders GROUP BY status"


class Search(Part):
    """Searches of one store's orders. Everything read shows every change acknowledged before the call."""

    async def page(self, query: Query) -> Page:
        """One page of orders."""
        statement = pages.single_statement(query) if query.limit <= SHORT_PAGE else None
        if statement is None:
            return await self._engine.read(lambda: pages.read_page(query))
        return pages.page_of(await self._engine.query(*statement), query)

    async def find(self, order_id: int) -> TrackedOrder:
        """One order. Raises OrderNotFound."""
        rows = await self._engine.query(_FIND, (order_id,))
        if not rows:
            raise OrderNotFound(order_id)
        record, status, updated_at, created_at = rows[0]
        return TrackedOrder(record, Status(status), updated_at, created_at)

    async def count(self, filters: Filters, most: int) -> Count:
        """The number of orders that match, counted up to `most`."""
        [(found,)] = await self._engine.query(*pages.count_statement(filters, most + 1), short=False)
        return Count(min(found, most), more=found > most)

    async def count_by_status(self) -> Mapping[Status, int]:
        """The number of orders with each status."""
        rows = await self._engine.query(_COUNT_BY_STATUS, short=False)
        return dict.fromkeys(Status, 0) | {Status(status): count for status, count in rows}
