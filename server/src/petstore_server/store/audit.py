"""The audit log: who changed what and when. A page or a count examines a bounded number of entries."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from petstore_server.domain.audit import Actor, AuditEntry, AuditFilters, AuditPage, AuditPosition, Change
from petstore_server.domain.lists import Count
from petstore_server.store.engine import Command, Part, Query, Row, Work, snapshot, transaction

REQUEST_ID = "request_id"  # where an entry keeps the request that made the change, among the values after it
MAX_SCAN = 20_000  # entries examined for one page or count at most

_ALL = AuditFilters()
_PAGE = 500
INSERT_ENTRY = """
    INSERT INTO petstore.audit (at, actor, action, subject, "before", "after") VALUES (%s, %s, %s, %s, %s, %s)
"""

_ORDER = {True: "ORDER BY at DESC, id DESC", False: "ORDER BY at, id"}  # by whether the newest entries are first

# The changes of orders that API keys make are most of the log: indexes leave out the entries that have no use for them.
# Each condition is the index's, word for word.
_FROM_REQUESTS = ("order.cancel", "order.place")
_BY_REQUEST = "\"after\"::json ->> 'request_id' = %s AND (action = 'order.cancel' OR action = 'order.place')"
_BY_ACTOR = "actor = %s AND substr(actor, 1, 4) <> 'key:'"
_BY_ACTION = "action = %s AND action <> 'order.cancel' AND action <> 'order.place'"


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
    async def entries(self, filters: AuditFilters = _ALL, *, newest_first: bool = False) -> AsyncIterator[AuditEntry]:
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
        """At most `limit` entries that match, after the position `last` or from the first in their order."""
        entries = [_entry(row) for row in (yield page_statement(filters, limit, last, newest_first=newest_first))]
        if len(entries) > limit:
            return AuditPage(entries[:limit], entries[limit - 1].position)
        if filters.request_id is not None or not _matching(filters).parameters:
            return AuditPage(entries, None)  # no entry was read in vain
        ranges = _ranges(filters, last, newest_first=newest_first)
        end = f"{ranges.sql} {_ORDER[newest_first]} LIMIT 1 OFFSET {MAX_SCAN - 1}"
        ended = yield Query(f"SELECT at, id FROM petstore.audit{end}", ranges.parameters)  # noqa: S608 - constants
        return AuditPage(entries, AuditPosition(*ended[0]) if ended else None)

    async def count(self, filters: AuditFilters) -> Count:
        """The number of entries that match, of which as many are examined as for a page of them."""
        ranges, matching = _ranges(filters, None, newest_first=True), _matching(filters)
        columns, order = ("actor, action, subject", _ORDER[True]) if matching.parameters else ("1", "")
        order = "" if filters.request_id is not None else order  # as in `page_statement`
        examined = f"SELECT {columns} FROM petstore.audit{ranges.sql} {order} LIMIT {MAX_SCAN}"  # noqa: S608 - constants
        matches = f"count(CASE WHEN {matching.sql.removeprefix(' WHERE ') or 'TRUE'} THEN 1 END)"
        return await self._count(matches, examined, (*matching.parameters, *ranges.parameters))

    @transaction
    def record_backup(self, file: str, actor: Actor) -> Work[None]:
        """Record that a good backup was made at `actor.at` in a file of this name."""
        yield Command("UPDATE petstore.store SET backed_up_at = %s", (actor.at,))
        yield record(actor, "store.backup", "store", Change(None, {"file": file}))

    async def last_backup(self) -> float | None:
        """When the last good backup was made, in Unix seconds; None if there was none."""
        [(at,)] = await self._engine.query("SELECT backed_up_at FROM petstore.store")
        return None if at is None else float(at)

    async def last_change(self) -> float:
        """When the last entry was made, in Unix seconds; 0 if there is none. A clock was wrong if others are later."""
        rows = await self._engine.query("SELECT at FROM petstore.audit ORDER BY id DESC LIMIT 1")
        return float(rows[0][0]) if rows else 0.0

    async def _count(self, number: str, examined: str, parameters: Row) -> Count:
        sql = f"SELECT {number}, count(*) FROM ({examined}) AS examined"  # noqa: S608 - constants
        [(found, read)] = await self._engine.query(sql, parameters, short=False)
        return Count(found, read == MAX_SCAN)


def page_statement(filters: AuditFilters, limit: int, last: AuditPosition | None, *, newest_first: bool) -> Query:
    """Select one more entry than `limit`, after the position `last`: its presence shows that the log goes on."""
    order, matching = _ORDER[newest_first], _matching(filters)
    ranges = _ranges(filters, last, newest_first=newest_first)
    entries = f'SELECT id, at, actor, action, subject, "before", "after" FROM petstore.audit{ranges.sql}'  # noqa: S608
    if filters.request_id is not None:
        # Found first, and then sorted: PostgreSQL might otherwise walk the whole log in its order.
        found = f"WITH found AS MATERIALIZED ({entries}) SELECT * FROM found{matching.sql} {order}"  # noqa: S608
    else:
        found = f"SELECT * FROM ({entries} {order} LIMIT {MAX_SCAN}) AS scanned{matching.sql}"  # noqa: S608
    return Query(f"{found} LIMIT {limit + 1}", (*ranges.parameters, *matching.parameters))


def _ranges(filters: AuditFilters, last: AuditPosition | None, *, newest_first: bool) -> Query:
    """The conditions that an index answers, after the position `last` on."""
    return _where(
        ("at >= %s", filters.since),
        ("at < %s", filters.until),
        (f"(at, id) {'<' if newest_first else '>'} (%s, %s)", last),
        _indexed(filters)[1:],
    )


def _indexed(filters: AuditFilters) -> tuple[str, str, object]:
    """The filter whose equality an index answers best: its name, condition and value, None if there is none."""
    if filters.request_id is not None:
        return "request_id", _BY_REQUEST, filters.request_id
    if filters.subjects:
        return "subjects", f"subject IN {_list(filters.subjects)}", filters.subjects
    if filters.actor is not None and not filters.actor.startswith("key:"):
        return "actor", _BY_ACTOR, filters.actor
    return "action", _BY_ACTION, filters.action if filters.action not in _FROM_REQUESTS else None


def _matching(filters: AuditFilters) -> Query:
    """The other conditions."""
    about = [(f"(subject IN {_list(names)} OR actor IN {_list(names)})", (*names, *names)) for names in filters.about]
    rest = {
        "subjects": (f"subject IN {_list(filters.subjects)}", filters.subjects or None),
        "actor": ("actor = %s", filters.actor),
        "action": ("action = %s", filters.action),
        "without": (f"action NOT IN {_list(filters.without)}", filters.without or None),
        "actors": ("substr(actor, 1, length(%s)) = %s", None if filters.actors is None else (filters.actors,) * 2),
    }
    name, _, value = _indexed(filters)
    if value is not None:
        rest.pop(name, None)
    return _where(*rest.values(), *about)


def _list(names: tuple[str, ...]) -> str:
    return f"({', '.join(['%s'] * len(names))})"


def _where(*conditions: tuple[str, object]) -> Query:
    wanted = [(text, value) for text, value in conditions if value is not None]
    texts = [text for text, _ in wanted]
    parameters = [each for _, value in wanted for each in (value if isinstance(value, tuple) else (value,))]
    return Query(f" WHERE {' AND '.join(texts)}" if texts else "", tuple(parameters))


def _entry(row: Row) -> AuditEntry:
    entry_id, at, actor, action, subject, before, after = row
    changed = from_json(after)
    request_id = changed.pop(REQUEST_ID, None) if isinstance(changed, dict) else None
    return AuditEntry(entry_id, at, actor, action, subject, from_json(before), changed, request_id)


def as_json(value: Any) -> str | None:
    """Encode a value of the log as JSON in ASCII, which every engine can hold; None stays None."""
    if value is None:
        return None
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        pass
    else:
        if text.isascii():
            return text.decode()
    return json.dumps(value, separators=(",", ":"))


def from_json(text: str | None) -> Any:
    """Decode what `as_json` encoded."""
    return None if text is None else json.loads(text)
