"""Statements that read the audit log, written for PostgreSQL; the same for every engine."""

from petstore_server.domain.audit import AuditFilters, AuditPosition
from petstore_server.domain.imports import IMPORT_ACTION
from petstore_server.domain.lists import Count
from petstore_server.store.engine import Query, Row

SCAN_LIMIT = 20_000
"""Entries examined for one page at most."""

_ENTRY_COLUMNS = 'id, at, actor, action, subject, "before", "after"'
_ORDER = {True: "ORDER BY at DESC, id DESC", False: "ORDER BY at, id"}
"""The order of a page, by whether the newest entries are first."""

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
    {_ORDER[True]} LIMIT %s
"""  # noqa: S608 - constants
_IMPORTS = f"""
    SELECT subject, min(actor), count(*), min(at), max(at) FROM ({_IMPORT_BATCHES}) AS batches
    GROUP BY subject ORDER BY max(at) DESC, subject DESC
"""  # noqa: S608 - constants
_LAST_BATCH = f"SELECT at, id FROM ({_IMPORT_BATCHES}) AS batches ORDER BY at, id LIMIT 1"  # noqa: S608 - constants


def page_statement(filters: AuditFilters, limit: int, last: AuditPosition | None, *, newest_first: bool) -> Query:
    """Select one more entry than `limit`, from behind the position `last`: its presence shows that the log goes on."""
    order, ranges, matching = (
        _ORDER[newest_first],
        _ranges(filters, last, newest_first=newest_first),
        _matching(filters),
    )
    entries = f"SELECT {_ENTRY_COLUMNS} FROM petstore.audit{ranges.sql}"  # noqa: S608 - constants
    if filters.request_id is not None:
        # Found first, and then sorted: PostgreSQL might otherwise walk the whole log in its order.
        found = f"WITH found AS MATERIALIZED ({entries}) SELECT * FROM found{matching.sql} {order}"  # noqa: S608
    else:
        found = f"SELECT * FROM ({entries} {order} LIMIT {SCAN_LIMIT}) AS scanned{matching.sql}"  # noqa: S608
    return Query(f"{found} LIMIT {limit + 1}", (*ranges.parameters, *matching.parameters))


def end_statement(filters: AuditFilters, last: AuditPosition | None, *, newest_first: bool) -> Query | None:
    """Select the position at which the scan of `page_statement` ended; None if every entry that it reads matches."""
    if filters.request_id is not None or not _matching(filters).parameters:
        return None
    ranges = _ranges(filters, last, newest_first=newest_first)
    end = f"{_ORDER[newest_first]} LIMIT 1 OFFSET {SCAN_LIMIT - 1}"
    return Query(f"SELECT at, id FROM petstore.audit{ranges.sql} {end}", ranges.parameters)  # noqa: S608 - constants


def count_statement(filters: AuditFilters) -> Query:
    """Count the entries that match among the newest that are examined, and these: SCAN_LIMIT at most."""
    ranges, matching = _ranges(filters, None, newest_first=True), _matching(filters)
    columns, order = ("actor, action, subject", _ORDER[True]) if matching.parameters else ("1", "")
    order = "" if filters.request_id is not None else order  # as in `page_statement`
    examined = f"SELECT {columns} FROM petstore.audit{ranges.sql} {order} LIMIT {SCAN_LIMIT}"  # noqa: S608 - constants
    matches = f"count(CASE WHEN {matching.sql.removeprefix(' WHERE ') or 'TRUE'} THEN 1 END)"
    sql = f"SELECT {matches}, count(*) FROM ({examined}) AS examined"  # noqa: S608 - constants
    return Query(sql, (*matching.parameters, *ranges.parameters))


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


def _ranges(filters: AuditFilters, last: AuditPosition | None, *, newest_first: bool) -> Query:
    """The conditions that an index answers, from behind the position `last` on."""
    return _where(
        ("at >= %s", filters.since),
        ("at < %s", filters.until),
        (f"(at, id) {'<' if newest_first else '>'} (%s, %s)", last),
        _indexed(filters),
    )


def _indexed(filters: AuditFilters) -> tuple[str, object]:
    """The equality that an index answers best, without a value if there is none."""
    if filters.request_id is not None:
        return _BY_REQUEST, filters.request_id
    if filters.subjects:
        return f"subject IN {_list(filters.subjects)}", filters.subjects
    if filters.actor is not None and not filters.actor.startswith("key:"):
        return _BY_ACTOR, filters.actor
    return _BY_ACTION, filters.action if filters.action not in _FROM_REQUESTS else None


def _matching(filters: AuditFilters) -> Query:
    """The other conditions."""
    about = [(f"(subject IN {_list(names)} OR actor IN {_list(names)})", (*names, *names)) for names in filters.about]
    rest = [
        (f"subject IN {_list(filters.subjects)}", filters.subjects or None),
        ("actor = %s", filters.actor),
        ("action = %s", filters.action),
        (f"action NOT IN {_list(filters.without)}", filters.without or None),
    ]
    condition, value = _indexed(filters)
    answered = "" if value is None else condition.split(" = ")[0]
    return _where(*[each for each in rest if each[0].split(" = ")[0] != answered], *about)


def _list(names: tuple[str, ...]) -> str:
    return f"({', '.join(['%s'] * len(names))})"


def _where(*conditions: tuple[str, object]) -> Query:
    given = [(text, value) for text, value in conditions if value is not None]
    texts = [text for text, _ in given]
    parameters = [each for _, value in given for each in (value if isinstance(value, tuple) else (value,))]
    return Query(f" WHERE {' AND '.join(texts)}" if texts else "", tuple(parameters))
