"""The audit log: who changed what and when. A page or a count examines a bounded number of entries.

By a request, it also examines all changes of webhooks, which have no index for that.
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec

from petstore_server.domain.audit import Actor, AuditEntry, AuditFilters, AuditPage, AuditPosition, Change
from petstore_server.domain.lists import MatchCount
from petstore_server.domain.texts import hide_keys
from petstore_server.store.engine import Part, snapshot, transaction
from petstore_server.store.statements import Condition, Execute, Query, Row, Work, all_of, marks

REQUEST_ID = "request_id"  # where an entry keeps the request that made the change, among the values after it
TRACE_ID = "trace_id"  # and the trace of which that was a part
VERIFIED = "verified"  # and that a proxy has given the name of the operator
MAX_SCAN = 20_000  # entries examined for one page or count at most

_ALL = AuditFilters()
_PAGE = 500
INSERT_ENTRY = """
    INSERT INTO petstore.audit (at, actor, action, subject, "before", "after") VALUES (%s, %s, %s, %s, %s, %s)
"""

# By its key: a time may have lost digits on its way.
_TIME_OF_ENTRY = "coalesce((SELECT at FROM petstore.audit WHERE id = %s), %s)"
_ORDER = {True: "ORDER BY at DESC, id DESC", False: "ORDER BY at, id"}  # by whether the newest entries are first

# The changes of orders that API keys make are most of the log: indexes leave out the entries that have no use for them.
# Each condition is the index's, word for word.
_OF_REQUEST = "\"after\"::json ->> 'request_id' = %s"
_OF_WEBHOOKS = "action IN ('webhook.create', 'webhook.delete', 'webhook.edit', 'webhook.ping', 'webhook.rotate')"
_BY_REQUEST = f"""
    ({_OF_REQUEST} AND substr(action, 1, 6) = 'order.'
    OR {_OF_REQUEST} AND {_OF_WEBHOOKS} AND substr(action, 1, 6) <> 'order.')
"""  # what requests change
_BY_ACTOR = "actor = %s AND substr(actor, 1, 4) <> 'key:'"
_BY_ACTION = "action = %s AND substr(action, 1, 6) <> 'order.'"
_OF_AN_ORDER = "order."  # how such actions begin
_WEBHOOKS_OF = f"SELECT subject FROM petstore.audit WHERE {_BY_ACTION} AND \"after\"::json ->> 'account' = %s"

_ACCOUNT = """
    (SELECT name FROM petstore.keys JOIN petstore.accounts ON accounts.id = account_id WHERE keys.id = substr(actor, 5))
"""  # of the actor, if that is a key


def record(actor: Actor, action: str, subject: str, change: Change) -> Execute:
    """Return the command that adds an entry, for the transaction of the change itself."""
    return Execute(INSERT_ENTRY, audit_row(actor, action, subject, change))


def audit_row(actor: Actor, action: str, subject: str, change: Change) -> Row:
    """Return the parameters of INSERT_ENTRY."""
    after = change.after
    if actor.request_id is not None:
        after = {**(after or {}), REQUEST_ID: actor.request_id}
        if actor.trace_id is not None:
            after[TRACE_ID] = actor.trace_id
    if actor.verified:
        after = {**(after or {}), VERIFIED: True}
    return actor.at, actor.name, action, subject, as_json(change.before), as_json(after)


class AuditLog(Part):
    async def entries(self, filters: AuditFilters = _ALL, *, newest_first: bool = False) -> AsyncIterator[AuditEntry]:
        """Yield the entries that match, oldest first by default, in bounded memory: no transaction stays open."""
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
        indexed, others = _conditions(filters, last, newest_first=newest_first)
        if filters.request_id is not None or not others:
            return AuditPage(entries, None)  # every entry that was read matches
        where, values = all_of(indexed)
        end = f"SELECT at, id FROM petstore.audit WHERE {where} {_ORDER[newest_first]} LIMIT 1 OFFSET {MAX_SCAN - 1}"
        ended = yield Query(end, values)
        return AuditPage(entries, AuditPosition(*ended[0]) if ended else None)

    async def count(self, filters: AuditFilters) -> MatchCount:
        """The number of entries that match, of which as many are examined as for a page of them."""
        indexed, others = _conditions(filters, None, newest_first=True)
        (where, values), (matching, wanted) = all_of(indexed), all_of(others)
        columns = "actor, action, subject" if others else "1"
        order = _ORDER[True] if others and filters.request_id is None else ""  # as in `page_statement`
        examined = f"SELECT {columns} FROM petstore.audit WHERE {where} {order} LIMIT {MAX_SCAN}"
        sql = f"SELECT count(CASE WHEN {matching} THEN 1 END), count(*) FROM ({examined}) AS examined"
        [(number, examined_number)] = await self._engine.query(sql, (*wanted, *values), short=False)
        return MatchCount(number, examined_number == MAX_SCAN)

    @transaction
    def record_backup(self, file: str, actor: Actor, began_at: float | None = None) -> Work[None]:
        """Record that a good backup was made in a file of this name.

        It has no change since `began_at` (Unix seconds), which is `actor.at` unless given.
        """
        at = actor.at if began_at is None else began_at
        yield Execute("UPDATE petstore.store SET backed_up_at = %s WHERE one = 1", (at,))
        yield record(actor, "store.backup", "store", Change(None, {"file": hide_keys(file)}))

    @transaction
    def record_export(self, filters: Mapping[str, str], actor: Actor) -> Work[None]:
        """Record that an operator exported the orders that match the filters, as they were typed; all without any."""
        hidden = {name: hide_keys(text) for name, text in filters.items()}
        yield record(actor, "orders.export", "orders", Change(None, hidden or None))

    async def last_backup(self) -> float | None:
        """When the last good backup began, in Unix seconds; None if there was none."""
        [(at,)] = await self._engine.query("SELECT backed_up_at FROM petstore.store WHERE one = 1")
        return None if at is None else float(at)

    async def webhooks_of(self, account: str) -> list[str]:
        """The subjects of entries about the webhooks that an account has or had."""
        rows = await self._engine.query(_WEBHOOKS_OF, ("webhook.create", account), short=False)
        return [subject for (subject,) in rows]

    async def last_change(self) -> float:
        """When the last entry was made, in Unix seconds; 0 if there is none. A clock was wrong if others are later."""
        rows = await self._engine.query("SELECT at FROM petstore.audit ORDER BY id DESC LIMIT 1")
        return float(rows[0][0]) if rows else 0.0


def page_statement(filters: AuditFilters, limit: int, last: AuditPosition | None, *, newest_first: bool) -> Query:
    """Select one more entry than `limit` after the position `last`: its presence shows that the log goes on."""
    order = _ORDER[newest_first]
    indexed, others = _conditions(filters, last, newest_first=newest_first)
    (where, values), (matching, wanted) = all_of(indexed), all_of(others)
    entries = f'SELECT id, at, actor, action, subject, "before", "after" FROM petstore.audit WHERE {where}'
    if filters.request_id is not None:
        # Found first, and then sorted: PostgreSQL might otherwise walk the whole log in its order.
        sql = f"WITH found AS MATERIALIZED ({entries}) SELECT *, {_ACCOUNT} FROM found WHERE {matching} {order}"
    else:
        sql = f"SELECT *, {_ACCOUNT} FROM ({entries} {order} LIMIT {MAX_SCAN}) AS scanned WHERE {matching}"
    return Query(f"{sql} LIMIT {limit + 1}", (*values, *wanted))


def _conditions(
    filters: AuditFilters, last: AuditPosition | None, *, newest_first: bool
) -> tuple[list[Condition], list[Condition]]:
    """The conditions that an index answers, with the position `last` after which entries come; and the others."""
    by_key = filters.actor is not None and filters.actor.startswith("key:")
    of_order, prefix = (filters.action or "").startswith(_OF_AN_ORDER), filters.actor_prefix
    times = [
        ("at >= %s", filters.since),
        ("at < %s", filters.until),
        (f"(at, id) {'<' if newest_first else '>'} ({_TIME_OF_ENTRY}, %s)", last and (last.id, last.at, last.id)),
    ]
    equalities = [  # those that an index answers best first
        (_BY_REQUEST, None if filters.request_id is None else (filters.request_id,) * 2),
        (f"subject IN {marks(filters.subjects)}", filters.subjects or None),
        (_BY_ACTOR, None if by_key else filters.actor),
        (_BY_ACTION, None if of_order else filters.action),
    ]
    others = [
        ("actor = %s", filters.actor if by_key else None),
        ("action = %s", filters.action if of_order else None),
        (f"action NOT IN {marks(filters.without)}", filters.without or None),
        ("substr(actor, 1, length(%s)) = %s", None if prefix is None else (prefix, prefix)),
        *[(f"(subject IN {marks(names)} OR actor IN {marks(names)})", (*names, *names)) for names in filters.about],
    ]
    equal = _given(equalities)
    return [*_given(times), *equal[:1]], [*equal[1:], *_given(others)]


def _given(conditions: Iterable[tuple[str, object]]) -> list[Condition]:
    """Those that have a value, or several as a tuple."""
    return [(text, value if isinstance(value, tuple) else (value,)) for text, value in conditions if value is not None]


def _entry(row: Row) -> AuditEntry:
    entry_id, at, actor, action, subject, before, after, account = row
    changed = from_json(after)
    made_by = changed if isinstance(changed, dict) else {}
    request_id, trace_id = made_by.pop(REQUEST_ID, None), made_by.pop(TRACE_ID, None)
    verified = made_by.pop(VERIFIED, False)
    changed = None if verified and not changed else changed
    values = from_json(before), changed, request_id, account, trace_id, verified
    return AuditEntry(entry_id, at, actor, action, subject, *values)


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
    return None if text is None else json.loads(text)
