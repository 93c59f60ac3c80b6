"""Statements that read the audit log, written for PostgreSQL; the same for every engine."""

from petstore_server.domain.audit import AuditEntry, AuditFilters, AuditPage, AuditPosition
from petstore_server.domain.imports import IMPORT_ACTION
from petstore_server.domain.lists import Count
from petstore_server.store.engine import Query, Row

SCAN_LIMIT = 20_000
"""Entries examined for one page at most, where no index finds those that match."""

ENTRY_COLUMNS = 'id, at, actor, action, subject, "before", "after"'
_NEWEST_FIRST = "ORDER BY at DESC, id DESC"

# The changes of orders that API keys make are most of the log: indexes leave out the entries that have no use for them.
# Each condition is the index's, word for word.
_FROM_REQUESTS = ("order.cancel", "order.place")
_OF_REQUESTS = "(action = 'order.cancel' OR action = 'order.place')"
_BY_REQUEST = f"\"after\"::json ->> 'request_id' = %s AND {_OF_REQUESTS}"
_BY_ACTOR = "actor = %s AND substr(actor, 1, 4) <> 'key:'"
_BY_ACTION = "action = %s AND action <> 'order.cancel' AND action <> 'order.place'"

_IMPORT_BATCHES = f"""
    SELECT subject, actor, at, id FROM petstore.audit WHERE {_BY_ACTION} AND (at, id) < (%s, %s)
        AND (actor = %s OR CAST(%s AS text) IS NULL)
    {_NEWEST_FIRST} LIMIT %s
"""  # noqa: S608 - constants
_IMPORTS = f"""
    SELECT subject, min(actor), count(*), min(at), max(at) FROM ({_IMPORT_BATCHES}) AS batches
    GROUP BY subject ORDER BY max(at) DESC, subject DESC
"""  # noqa: S608 - constants
_LAST_BATCH = f"SELECT at, id FROM ({_IMPORT_BATCHES}) AS batches ORDER BY at, id LIMIT 1"  # noqa: S608 - constants


def entries_statement(filters: AuditFilters, limit: int, last: AuditPosition | None, *, newest_first: bool) -> Query:
    """Select at most `limit` entries in their order, from behind the position `last` or from the first."""
    where = _and(_ranges(filters, "<" if newest_first else ">", last), _matching(filters))
    order = _NEWEST_FIRST if newest_first else "ORDER BY at, id"
    sql = f"SELECT {ENTRY_COLUMNS} FROM petstore.audit{where.sql} {order} LIMIT {limit}"  # noqa: S608
    return Query(sql, where.parameters)


def page_statement(filters: AuditFilters, limit: int, before: AuditPosition | None) -> Query:
    """Select one more entry than `limit`, so that its presence shows that the log goes on."""
    ranges, matching = _ranges(filters, "<", before), _matching(filters)
    if filters.request_id is not None and not filters.subjects:
        # Found first, and then sorted: PostgreSQL might otherwise walk the whole log in its order.
        where = _and(ranges, matching)
        first = f"WITH found AS MATERIALIZED (SELECT {ENTRY_COLUMNS} FROM petstore.audit{where.sql})"  # noqa: S608
        return Query(f"{first} SELECT * FROM found {_NEWEST_FIRST} LIMIT {limit + 1}", where.parameters)  # noqa: S608
    if not _is_scan(filters):
        return _select("petstore.audit", _and(ranges, matching), limit + 1)
    scanned = _select("petstore.audit", ranges, SCAN_LIMIT)
    found = _select(f"({scanned.sql}) AS scanned", matching, limit + 1, "*")
    return Query(found.sql, (*scanned.parameters, *found.parameters))


def end_statement(filters: AuditFilters, before: AuditPosition | None) -> Query | None:
    """Select the position at which the scan of `page_statement` ended; None if it had no bound."""
    if not _is_scan(filters):
        return None
    ranges = _ranges(filters, "<", before)
    sql = f"SELECT at, id FROM petstore.audit{ranges.sql} {_NEWEST_FIRST} LIMIT 1 OFFSET {SCAN_LIMIT - 1}"  # noqa: S608
    return Query(sql, ranges.parameters)


def count_statement(filters: AuditFilters) -> Query:
    """Count the entries that match among the newest that are examined, and these: SCAN_LIMIT at most."""
    ranges, matching = _ranges(filters, "<", None), _matching(filters)
    if _is_scan(filters):
        examined, chosen = _select("petstore.audit", ranges, SCAN_LIMIT, "actor, action, subject"), matching
    else:
        where, chosen = _and(ranges, matching), Query(" WHERE TRUE")
        examined = Query(f"SELECT 1 FROM petstore.audit{where.sql} LIMIT {SCAN_LIMIT}", where.parameters)  # noqa: S608
    matches = f"count(CASE WHEN {chosen.sql.removeprefix(' WHERE ')} THEN 1 END)"
    sql = f"SELECT {matches}, count(*) FROM ({examined.sql}) AS examined"  # noqa: S608 - constants
    return Query(sql, (*chosen.parameters, *examined.parameters))


def count_of(row: Row) -> Count:
    """The count from its row."""
    number, examined = row
    return Count(number, examined == SCAN_LIMIT)


def imports_count_statement(actor: str | None) -> Query:
    """Count the imports among the newest of their entries, and these: SCAN_LIMIT at most."""
    parameters = (IMPORT_ACTION, float("inf"), 0, actor, actor, SCAN_LIMIT)
    return Query(f"SELECT count(DISTINCT subject), count(*) FROM ({_IMPORT_BATCHES}) AS batches", parameters)  # noqa: S608


def imports_statements(before: AuditPosition | None, batches: int, actor: str | None) -> tuple[Query, Query]:
    """Select the imports among so many of their entries before a position, and the position of the last of these."""
    parameters = (IMPORT_ACTION, *(before or (float("inf"), 0)), actor, actor, batches)
    return Query(_IMPORTS, parameters), Query(_LAST_BATCH, parameters)


def page_of(entries: list[AuditEntry], limit: int, end: AuditPosition | None) -> AuditPage:
    """The page made of the entries found, where a scan that did not find enough ended at `end`."""
    if len(entries) > limit:
        return AuditPage(entries[:limit], entries[limit - 1].position)
    return AuditPage(entries, end)


def _is_scan(filters: AuditFilters) -> bool:
    """Whether many entries may have to be examined for each that matches."""
    return not filters.subjects and filters.request_id is None and bool(_matching(filters).parameters)


def _ranges(filters: AuditFilters, direction: str, position: AuditPosition | None) -> Query:
    """The conditions that an index answers, from the position on in this direction (< or >)."""
    return _where(
        ("at >= %s", filters.since),
        ("at < %s", filters.until),
        (f"(at, id) {direction} (%s, %s)", position),
        _indexed(filters),
    )


def _indexed(filters: AuditFilters) -> tuple[str, object]:
    """The equality that an index answers best, without a value if there is none."""
    if filters.subjects:
        return f"subject IN {_list(filters.subjects)}", filters.subjects
    if filters.request_id is not None:
        return _BY_REQUEST, filters.request_id
    if filters.actor is not None and not filters.actor.startswith("key:"):
        return _BY_ACTOR, filters.actor
    return _BY_ACTION, filters.action if filters.action not in _FROM_REQUESTS else None


def _matching(filters: AuditFilters) -> Query:
    """The other conditions."""
    about = [(f"(subject IN {_list(names)} OR actor IN {_list(names)})", (*names, *names)) for names in filters.about]
    rest = [
        (_BY_REQUEST, filters.request_id),
        ("actor = %s", filters.actor),
        ("action = %s", filters.action),
        (f"action NOT IN {_list(filters.without)}", filters.without or None),
    ]
    condition, value = _indexed(filters)
    answered = "" if value is None else condition.split(" = ")[0]
    return _where(*[each for each in rest if each[0].split(" = ")[0] != answered], *about)


def _list(names: tuple[str, ...]) -> str:
    return f"({', '.join(['%s'] * len(names))})"


def _select(table: str, where: Query, limit: int, columns: str = ENTRY_COLUMNS) -> Query:
    sql = f"SELECT {columns} FROM {table}{where.sql} {_NEWEST_FIRST} LIMIT {limit}"  # noqa: S608 - constants
    return Query(sql, where.parameters)


def _where(*conditions: tuple[str, object]) -> Query:
    given = [(text, value) for text, value in conditions if value is not None]
    texts = [text for text, _ in given]
    parameters = [each for _, value in given for each in (value if isinstance(value, tuple) else (value,))]
    return Query(f" WHERE {' AND '.join(texts)}" if texts else "", tuple(parameters))


def _and(one: Query, other: Query) -> Query:
    sql = one.sql + (other.sql.replace(" WHERE ", " AND ", 1) if one.sql else other.sql)
    return Query(sql, (*one.parameters, *other.parameters))
