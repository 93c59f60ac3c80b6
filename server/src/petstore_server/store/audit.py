"""The audit log: who changed what and when."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from petstore_server.domain.audit import (
    Actor,
    AuditEntry,
    AuditFilters,
    AuditPage,
    AuditPosition,
    Change,
    ImportEntries,
    ImportsPage,
)
from petstore_server.domain.lists import Count
from petstore_server.store.audit_pages import (
    count_of,
    count_statement,
    end_statement,
    imports_count_statement,
    imports_statements,
    page_statement,
)
from petstore_server.store.engine import Command, Part, Query, Row, Work, snapshot

REQUEST_ID = "request_id"
"""Where an entry keeps the request that made the change, among the values after it."""

_PAGE = 500
_BATCHES = 2000  # entries of imports that are read for one page of imports
INSERT_ENTRY = """
    INSERT INTO petstore.audit (at, actor, action, subject, "before", "after") VALUES (%s, %s, %s, %s, %s, %s)
"""


def record(actor: Actor, action: str, subject: str, change: Change) -> Command:
    """Return the command that adds an entry, for the transaction of the change itself."""
    return Command(INSERT_ENTRY, audit_row(actor, action, subject, change))


def audit_row(actor: Actor, action: str, subject: str, change: Change) -> Row:
    """Return the parameters of INSERT_ENTRY."""
    after = change.after
    if actor.request_id is not None:
        after = {**(after or {}), REQUEST_ID: actor.request_id}
    return actor.at, actor.name, action, subject, as_json(change.before), as_json(after)


class AuditLog(Part):
    """The audit log of one store."""

    async def entries(
        self,
        filters: AuditFilters = AuditFilters(),  # noqa: B008 - immutable
        *,
        newest_first: bool = False,
    ) -> AsyncIterator[AuditEntry]:
        """Yield the entries that match, oldest first unless told, in bounded memory: no transaction stays open."""
        page = AuditPage((), None)
        while True:
            page = await self.page(filters, _PAGE, page.next, newest_first=newest_first)
            for entry in page.entries:
                yield entry
            if page.next is None:
                return

    @snapshot
    def page(
        self, filters: AuditFilters, limit: int, last: AuditPosition | None = None, *, newest_first: bool = True
    ) -> Work[AuditPage]:
        """At most `limit` entries that match, from behind the position `last` or from the first in their order."""
        entries = [_entry(row) for row in (yield page_statement(filters, limit, last, newest_first=newest_first))]
        if len(entries) > limit:
            return AuditPage(entries[:limit], entries[limit - 1].position)
        end = end_statement(filters, last, newest_first=newest_first)
        ended = (yield end) if end is not None else []
        return AuditPage(entries, AuditPosition(*ended[0]) if ended else None)

    async def count(self, filters: AuditFilters) -> Count:
        """The number of entries that match, of which as many are examined as for a page of them."""
        return await self._count(count_statement(filters))

    async def count_imports(self, actor: str | None = None) -> Count:
        """The number of imports, of all actors or one."""
        return await self._count(imports_count_statement(actor))

    async def _count(self, statement: Query) -> Count:
        [row] = await self._engine.query(*statement, short=False)
        return count_of(row)

    @snapshot
    def imports(self, before: AuditPosition | None = None, actor: str | None = None) -> Work[ImportsPage]:
        """The latest imports of orders, of all actors or one, from before a position or from the newest.

        Each batch has an entry. An import of more batches than are read for a page is also on the next page.
        """
        imports, last = imports_statements(before, _BATCHES, actor)
        found = [ImportEntries(*row) for row in (yield imports)]
        is_full = sum(each.batches for each in found) == _BATCHES
        [position] = (yield last) if is_full else [None]
        return ImportsPage(found, position and AuditPosition(*position))


def _entry(row: Row) -> AuditEntry:
    entry_id, at, actor, action, subject, before, after = row
    changed = _value(after)
    request_id = changed.pop(REQUEST_ID, None) if isinstance(changed, dict) else None
    return AuditEntry(entry_id, at, actor, action, subject, _value(before), changed, request_id)


def as_json(value: Any) -> str | None:
    """Encode a value of the log as JSON in ASCII, which every engine can hold; None stays None."""
    if value is None:
        return None
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value)
    return text.decode() if text.isascii() else json.dumps(value)


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
