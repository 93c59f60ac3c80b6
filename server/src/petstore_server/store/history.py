"""The usage history: hours, which are summed into days once they are old (`domain.usage`)."""

from typing import Any

from petstore_server.domain.usage import (
    Activity,
    Granularity,
    KeylessCounts,
    KeylessRow,
    UsageCounts,
    UsageRow,
    add,
    merge_rows,
)
from petstore_server.store.engine import Command, Commands, Part, Query, Work, bulk_transaction, snapshot

_COUNTS = UsageCounts._fields
_KEYLESS = KeylessCounts._fields
_DAY = Granularity.DAY.seconds


def _columns(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _sums(names: tuple[str, ...]) -> str:
    return ", ".join(f"CAST(sum({name}) AS bigint)" for name in names)


def _added(table: str, names: tuple[str, ...]) -> str:
    """Add to the row that is there: every process, on every host, saves what it counted itself."""
    return "DO UPDATE SET " + ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in names)


# A restore may have removed an account or a key that a running process still counts: those are skipped.
_ADD = f"""
    INSERT INTO petstore.usage_hours (account_id, start, {_columns(_COUNTS)})
    SELECT id, %s, %s, %s, %s, %s, %s FROM petstore.accounts WHERE id = %s
    ON CONFLICT (account_id, start) {_added("usage_hours", _COUNTS)}
"""  # noqa: S608 - constants
_ADD_KEYLESS = f"""
    INSERT INTO petstore.keyless_hours (start, {_columns(_KEYLESS)}) VALUES (%s, %s, %s)
    ON CONFLICT (start) {_added("keyless_hours", _KEYLESS)}
"""  # noqa: S608 - constants
_SET_KEY_USE = """
    INSERT INTO petstore.key_use (key_id, last_hour) SELECT id, %s FROM petstore.keys WHERE id = %s
    ON CONFLICT (key_id) DO UPDATE SET last_hour = excluded.last_hour WHERE excluded.last_hour > key_use.last_hour
"""
_TABLES = {Granularity.HOUR: "usage_hours", Granularity.DAY: "usage_days"}
_KEYLESS_TABLES = {Granularity.HOUR: "keyless_hours", Granularity.DAY: "keyless_days"}
_PERIOD = "start >= %s AND start < %s"
_OLDEST = """
    SELECT min(start) FROM (
        SELECT min(start) AS start FROM petstore.usage_hours UNION ALL SELECT min(start) FROM petstore.keyless_hours
    ) AS oldest
"""
_LOCK = "SELECT one FROM petstore.store FOR UPDATE"
_SUM_INTO_DAY = f"""
    INSERT INTO petstore.usage_days (account_id, start, {_columns(_COUNTS)})
    SELECT account_id, %s, {_sums(_COUNTS)} FROM petstore.usage_hours WHERE {_PERIOD} GROUP BY account_id
    ON CONFLICT (account_id, start) {_added("usage_days", _COUNTS)}
"""  # noqa: S608 - constants
_SUM_KEYLESS_INTO_DAY = f"""
    INSERT INTO petstore.keyless_days (start, {_columns(_KEYLESS)})
    SELECT %s, {_sums(_KEYLESS)} FROM petstore.keyless_hours WHERE {_PERIOD} HAVING count(*) > 0
    ON CONFLICT (start) {_added("keyless_days", _KEYLESS)}
"""  # noqa: S608 - constants


def save_activity(activity: Activity) -> Work[None]:
    """Add what a process counted. In ascending order, so that two transactions never wait for each other."""
    hours = [(start, *counts, account_id) for (account_id, start), counts in sorted(activity.accounts.items())]
    keyless = [(start, *counts) for start, counts in sorted(activity.keyless.items())]
    keys = [(hour, key_id) for key_id, hour in sorted(activity.keys.items())]
    for sql, rows in ((_ADD, hours), (_ADD_KEYLESS, keyless), (_SET_KEY_USE, keys)):
        if rows:
            yield Commands(sql, rows)


class UsageHistory(Part):
    """The usage history of one store. Periods begin at `start` or later and before `end`, in Unix seconds."""

    @snapshot
    def history(self, account_id: int | None, start: int, end: int, by: Granularity) -> Work[list[UsageRow]]:
        """The hours or days of an account, or the sums of all if it is None, ascending; without those of no request."""
        rows: list[UsageRow] = []
        for table in _tables(_TABLES, by):
            chosen = "" if account_id is None else "account_id = %s AND "
            sql = f"SELECT start, {_sums(_COUNTS)} FROM petstore.{table} WHERE {chosen}{_PERIOD} GROUP BY start"  # noqa: S608
            values = (start, end) if account_id is None else (account_id, start, end)
            rows += [UsageRow(first, UsageCounts(*counts)) for first, *counts in (yield Query(sql, values))]
        return merge_rows(rows, by)

    @snapshot
    def keyless_history(self, start: int, end: int, by: Granularity) -> Work[list[KeylessRow]]:
        """The same for requests without a valid key."""
        rows: list[KeylessRow] = []
        for table in _tables(_KEYLESS_TABLES, by):
            sql = f"SELECT start, {_columns(_KEYLESS)} FROM petstore.{table} WHERE {_PERIOD}"  # noqa: S608 - constants
            rows += [KeylessRow(first, KeylessCounts(*counts)) for first, *counts in (yield Query(sql, (start, end)))]
        return merge_rows(rows, by)

    @snapshot
    def totals(self, start: int, end: int) -> Work[dict[int, UsageCounts]]:
        """The sums of each active account, by id."""
        found: dict[int, UsageCounts] = {}
        for table in _TABLES.values():
            sql = f"SELECT account_id, {_sums(_COUNTS)} FROM petstore.{table} WHERE {_PERIOD} GROUP BY account_id"  # noqa: S608
            for account_id, *counts in (yield Query(sql, (start, end))):
                found[account_id] = add(found.get(account_id, UsageCounts()), UsageCounts(*counts))
        return found

    @bulk_transaction
    def compact(self, hours_before: int, days_before: int) -> Work[bool]:
        """Sum the hours of one day that ended before `hours_before` into that day; delete days before `days_before`.

        Both are starts of days in Unix seconds. Returns whether there may be more to do.
        """
        yield Query(_LOCK)  # another process may do the same: it then finds no hours left
        [(oldest,)] = yield Query(_OLDEST)
        if oldest is None or oldest >= hours_before:
            for table in _TABLES[Granularity.DAY], _KEYLESS_TABLES[Granularity.DAY]:
                yield Command(f"DELETE FROM petstore.{table} WHERE start < %s", (days_before,))  # noqa: S608 - constants
            return False
        day = Granularity.DAY.start(oldest)
        period = day, day + _DAY
        yield Command(_SUM_INTO_DAY, (day, *period))
        yield Command(_SUM_KEYLESS_INTO_DAY, (day, *period))
        for table in _TABLES[Granularity.HOUR], _KEYLESS_TABLES[Granularity.HOUR]:
            yield Command(f"DELETE FROM petstore.{table} WHERE {_PERIOD}", period)  # noqa: S608 - constants
        return True


def _tables(names: dict[Granularity, Any], by: Granularity) -> list[str]:
    """The tables that have rows of this granularity: days are stored as days, or still as their hours."""
    return [names[Granularity.HOUR]] if by is Granularity.HOUR else list(names.values())
