"""Usage as counted in memory, its history by hour and later by day, and bans: the authority for these (D12)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from petstore_server.domain.audit import SERVICE, Actor, Change
from petstore_server.domain.bans import Ban
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.usage import NO_ACTIVITY, Activity, Granularity, KeylessCounts, Usage, UsageCounts, merge
from petstore_server.domain.windows import Count
from petstore_server.store.access import ACCESS_CHANGED, save_ban
from petstore_server.store.audit import record
from petstore_server.store.engine import Part, bulk_transaction, snapshot, transaction
from petstore_server.store.statements import Execute, ExecuteMany, ExecuteRows, Query, Row, Work

_SELECT_BANS = "SELECT key_id, began, until, level FROM petstore.bans"
_COLUMNS = "account_id, minute_start, minute_used, day_start, day_used"
_COUNTS, _KEYLESS = UsageCounts._fields, KeylessCounts._fields
_TEXTS = ("operation", "used", "key_id")  # columns; all others are numbers


def _new(columns: str) -> str:
    """The rows of `ExecuteRows`, which have these columns."""
    names = columns.split(", ")
    arrays = ("%s::text[]" if name in _TEXTS else "%s::bigint[]" for name in names)
    return f"unnest({', '.join(arrays)}) AS new ({columns})"


def _sums(names: Sequence[str]) -> str:
    return ", ".join(f"CAST(sum({name}) AS bigint)" for name in names)


def _added(table: str, names: Sequence[str]) -> str:
    """Add to the row that is there: every process, on every host, saves what it counted itself."""
    return "DO UPDATE SET " + ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in names)


def _later(table: str) -> str:
    """Whether a new `last_hour` takes the place of the stored one: one over a day earlier is of a clock set back."""
    return f"(excluded.last_hour > {table}.last_hour OR excluded.last_hour < {table}.last_hour - {DAY})"


# A restore may have removed an account or a key that a running process still counts: those are skipped. With a join,
# PostgreSQL might not keep the order of the rows.
_OF_AN_ACCOUNT = "WHERE (SELECT TRUE FROM petstore.accounts WHERE id = new.account_id)"
_SAVE_USAGE = f"""
    INSERT INTO petstore.usage ({_COLUMNS}) SELECT new.* FROM {_new(_COLUMNS)} {_OF_AN_ACCOUNT}
    ON CONFLICT (account_id) DO UPDATE SET
        minute_start = excluded.minute_start, minute_used = excluded.minute_used,
        day_start = excluded.day_start, day_used = excluded.day_used
"""
_SELECT = f"SELECT {_COLUMNS} FROM petstore.usage"
_PERIOD = "seconds = %s AND start = %s"
_ADDED = f"account_id, start, operation, {', '.join(_COUNTS)}"
_ADD = f"""
    INSERT INTO petstore.usage_history (seconds, {_ADDED}) SELECT {HOUR}, new.* FROM {_new(_ADDED)} {_OF_AN_ACCOUNT}
    ON CONFLICT (account_id, seconds, start, operation) {_added("usage_history", _COUNTS)}
"""
_API_USE = "account_id, used, last_hour"
_SET_API_USE = f"""
    INSERT INTO petstore.api_use ({_API_USE}) SELECT new.* FROM {_new(_API_USE)} {_OF_AN_ACCOUNT}
    ON CONFLICT (account_id, used) DO UPDATE SET last_hour = excluded.last_hour
    WHERE {_later("api_use")}
"""
_ADD_KEYLESS = f"""
    INSERT INTO petstore.keyless_history (seconds, start, {", ".join(_KEYLESS)}) VALUES ({HOUR}, %s, %s, %s)
    ON CONFLICT (seconds, start) {_added("keyless_history", _KEYLESS)}
"""
_SET_KEY_USE = f"""
    INSERT INTO petstore.key_use (key_id, last_hour) SELECT new.* FROM {_new("key_id, last_hour")}
    WHERE (SELECT TRUE FROM petstore.keys WHERE id = new.key_id)
    ON CONFLICT (key_id) DO UPDATE SET last_hour = excluded.last_hour WHERE {_later("key_use")}
"""
_OLDEST = """
    SELECT min(start) FROM (
        SELECT min(start) AS start FROM petstore.usage_history WHERE seconds = %s
        UNION ALL SELECT min(start) FROM petstore.keyless_history WHERE seconds = %s
    ) AS oldest
"""

_PERIODS = f"seconds IN ({HOUR}, %s) AND start >= %s AND start < %s"  # days are stored as days, or still as their hours
# By table: the columns of what is counted, with a comma, and of its counts.
_HISTORIES = {"usage_history": ("account_id, operation,", _COUNTS), "keyless_history": ("", _KEYLESS)}


class UsageStore(Part):
    """Usage, its history and bans of one store. Periods begin at `start` or later, before `end` (Unix seconds)."""

    async def find(self, account_id: int) -> Usage:
        """Return the usage of the account, as last saved."""
        rows = await self._engine.query(f"{_SELECT} WHERE account_id = %s", (account_id,))
        return _usage(*rows[0][1:]) if rows else Usage()

    async def all(self) -> Mapping[int, Usage]:
        """Return the usage of each account (by id), as last saved."""
        rows = await self._engine.query(_SELECT, short=False)
        return {account_id: _usage(*counts) for account_id, *counts in rows}

    @snapshot
    def bans(self) -> Work[Sequence[Ban]]:
        """Return the latest ban of each key that has one, including ended ones, which lengthen the next."""
        return [Ban(*row) for row in (yield Query(f"{_SELECT_BANS} ORDER BY key_id"))]

    async def last_ban(self, key_id: str) -> Ban | None:
        """The latest ban of a key; None also after it was lifted."""
        rows = await self._engine.query(f"{_SELECT_BANS} WHERE key_id = %s", (key_id,))
        return Ban(*rows[0]) if rows else None

    @transaction
    def save(self, usage: Mapping[int, Usage], bans: Sequence[Ban], activity: Activity = NO_ACTIVITY) -> Work[None]:
        """Save usage by account id and new bans, and add to the usage history, in one transaction."""
        # In ascending order, as in every transaction, so that two of them never wait for each other.
        windows = [
            (account_id, minute.start, minute.used, day.start, day.used)
            for account_id, (minute, day) in sorted(usage.items())
        ]
        yield ExecuteRows(_SAVE_USAGE, windows)
        changed = False
        for key_id, ban in sorted({ban.key_id: ban for ban in bans}.items()):
            # After a rotation under way, so that its successor is found.
            if (yield Query("SELECT id FROM petstore.keys WHERE id = %s FOR SHARE", (key_id,))):
                changed |= yield from _save_ban(ban)
        if changed:
            yield ACCESS_CHANGED
        yield ExecuteRows(_ADD, [(*place, *counts) for place, counts in sorted(activity.accounts.items())])
        yield ExecuteMany(_ADD_KEYLESS, [(start, *counts) for start, counts in sorted(activity.keyless.items())])
        yield ExecuteRows(_SET_KEY_USE, sorted(activity.keys.items()))
        yield ExecuteRows(_SET_API_USE, [(*use, hour) for use, hour in sorted(activity.uses.items())])

    async def counts(self, account_id: int | None, start: int, end: int, by: Granularity) -> dict[int, UsageCounts]:
        """The hours or days with requests of an account, or the sums of all if it is None, by start, ascending."""
        return merge((await self._summed("start", account_id, by, start, end)).items(), by)

    async def operations(self, account_id: int | None, start: int, end: int) -> dict[str, UsageCounts]:
        """The sums of each operation that an account asked for, or any if it is None, by its identifier."""
        return await self._summed("operation", account_id, Granularity.DAY, start, end)

    async def last_used(self, account_id: int) -> dict[str, int]:
        """The hour in which the account last used each operation and each version (`uses_of`)."""
        sql = "SELECT used, last_hour FROM petstore.api_use WHERE account_id = %s ORDER BY used"
        return dict(await self._engine.query(sql, (account_id,)))

    async def used_by(self, used: str) -> dict[int, int]:
        """The accounts, by id, that have used an operation or a version, with the hour in which they last did."""
        sql = "SELECT account_id, last_hour FROM petstore.api_use WHERE used = %s"
        return dict(await self._engine.query(sql, (used,), short=False))

    async def users(self, since: float) -> dict[str, int]:
        """The number of accounts that have used each operation and each version `since` (Unix seconds)."""
        sql = "SELECT used, count(*) FROM petstore.api_use WHERE last_hour >= %s GROUP BY used ORDER BY used"
        return dict(await self._engine.query(sql, (since,), short=False))

    async def keyless_history(self, start: int, end: int, by: Granularity) -> dict[int, KeylessCounts]:
        """The hours or days with requests without a valid key, by start, ascending."""
        sql = f"SELECT start, {', '.join(_KEYLESS)} FROM petstore.keyless_history WHERE {_PERIODS}"
        rows = await self._engine.query(sql, (by.seconds, start, end), short=False)
        return merge([(first, KeylessCounts(*counts)) for first, *counts in rows], by)

    async def totals(self, start: int, end: int) -> dict[int, UsageCounts]:
        """The sums of each active account, by id."""
        return await self._summed("account_id", None, Granularity.DAY, start, end)

    @bulk_transaction
    def compact(self, hours_before: int, days_before: int) -> Work[bool]:
        """Add the oldest hour to its day, if it is before `hours_before`; or else delete a day before `days_before`.

        Both are starts of days in Unix seconds. Returns whether there may be more to do. Only an hour or a day at a
        time, because changes of access wait for the store's row.
        """
        # Another process may do the same: it then finds no hours left.
        yield Query("SELECT one FROM petstore.store WHERE one = 1 FOR UPDATE")
        hour = yield from _oldest(HOUR, hours_before)
        if hour is None:
            day = yield from _oldest(DAY, days_before)
            for table in _HISTORIES:
                yield Execute(f"DELETE FROM petstore.{table} WHERE {_PERIOD}", (DAY, day))
            return day is not None
        for table, (key, names) in _HISTORIES.items():
            sum_into_day = f"""
                INSERT INTO petstore.{table} ({key} seconds, start, {", ".join(names)})
                SELECT {key} {DAY}, %s, {_sums(names)} FROM petstore.{table} WHERE {_PERIOD} GROUP BY {key} seconds
                ON CONFLICT ({key} seconds, start) {_added(table, names)}
            """
            yield Execute(sum_into_day, (Granularity.DAY.start(hour), HOUR, hour))
            yield Execute(f"DELETE FROM petstore.{table} WHERE {_PERIOD}", (HOUR, hour))
        return True

    async def _summed(
        self, column: str, account_id: int | None, by: Granularity, start: int, end: int
    ) -> dict[Any, UsageCounts]:
        """The sums of a period for each value of a column, of one account or of all."""
        chosen, values = ("", ()) if account_id is None else ("AND account_id = %s", (account_id,))
        sql = f"""
            SELECT {column}, {_sums(_COUNTS)} FROM petstore.usage_history WHERE {_PERIODS} {chosen}
            GROUP BY {column} ORDER BY {column}
        """
        query = Query(sql, (by.seconds, start, end, *values))
        if account_id is None:
            rows = await self._engine.query(query.sql, query.parameters, short=False)
        else:  # for a request, which does not wait for the turn of a long read
            rows = await self._rows(query)
        return {value: UsageCounts(*counts) for value, *counts in rows}

    @snapshot
    def _rows(self, query: Query) -> Work[list[Row]]:
        return (yield query)


def _oldest(seconds: int, before: int) -> Work[int | None]:
    """The start of the oldest hour or day of which there are counts, if it is `before` this (Unix seconds)."""
    [(start,)] = yield Query(_OLDEST, (seconds, seconds))
    return start if start is not None and start < before else None


def _save_ban(ban: Ban) -> Work[bool]:
    """Save a ban of a key, and of successors to which it was rotated meanwhile; return whether anything changed."""
    changed = bool((yield save_ban(ban)))
    if changed:
        reason = "requests that ignored Retry-After"
        fields = {"began": ban.began, "until": ban.until, "level": ban.level, "reason": reason}
        if ban.strikes is not None:
            fields["strikes"] = ban.strikes
        yield record(Actor(SERVICE, ban.began), "key.ban", f"key:{ban.key_id}", Change(None, fields))
    successors = yield Query("SELECT id, created_at FROM petstore.keys WHERE rotated_from = %s", (ban.key_id,))
    for successor, created_at in successors:
        if ban.began <= created_at:  # the ban is stored up to a quarter of a second after it began
            changed |= yield from _save_ban(replace(ban, key_id=successor))
    return changed


def _usage(minute_start: int, minute_used: int, day_start: int, day_used: int) -> Usage:
    return Usage(Count(minute_start, minute_used), Count(day_start, day_used))
