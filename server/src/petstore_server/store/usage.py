"""Usage, its history, and bans.

A limiter in process memory saves its counts here; Redis keeps its own. For bans the store is the authority (D12).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from petstore_server.domain.audit import SERVICE, Actor, Change
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import inherits
from petstore_server.domain.usage import NO_ACTIVITY, Activity, Usage
from petstore_server.domain.windows import Count
from petstore_server.store.accounts import ACCESS_CHANGED
from petstore_server.store.audit import record
from petstore_server.store.engine import Commands, Query, Work, transaction
from petstore_server.store.history import UsageHistory, save_activity

_COLUMNS = "account_id, minute_start, minute_used, day_start, day_used"
# A running limiter may still know an account or a key that a restore has removed: those are skipped.
_SAVE_USAGE = f"""
    INSERT INTO petstore.usage ({_COLUMNS})
    SELECT id, %s, %s, %s, %s FROM petstore.accounts WHERE id = %s
    ON CONFLICT (account_id) DO UPDATE SET
        minute_start = excluded.minute_start, minute_used = excluded.minute_used,
        day_start = excluded.day_start, day_used = excluded.day_used
"""  # noqa: S608 - constants
_LOCK_KEY = "SELECT id FROM petstore.keys WHERE id = %s FOR SHARE"
_SUCCESSOR = "SELECT id, created_at FROM petstore.keys WHERE rotated_from = %s"
_SAVE_BAN = """
    INSERT INTO petstore.bans (key_id, began, until, level) VALUES (%s, %s, %s, %s)
    ON CONFLICT (key_id) DO UPDATE SET began = excluded.began, until = excluded.until, level = excluded.level
    WHERE (bans.began, bans.until, bans.level) IS DISTINCT FROM (excluded.began, excluded.until, excluded.level)
    RETURNING key_id
"""
_REASON = "requests that ignored Retry-After"
_FIND = f"SELECT {_COLUMNS} FROM petstore.usage WHERE account_id = %s"  # noqa: S608 - constants
_ALL = f"SELECT {_COLUMNS} FROM petstore.usage"  # noqa: S608 - constants
_BANS = "SELECT key_id, began, until, level FROM petstore.bans ORDER BY key_id"


class UsageStore(UsageHistory):
    """The usage, its history and the bans of one store."""

    async def find(self, account_id: int) -> Usage:
        """Return what the account has used, as last saved."""
        rows = await self._engine.query(_FIND, (account_id,))
        return _usage(*rows[0][1:]) if rows else Usage()

    async def all(self) -> Mapping[int, Usage]:
        """Return what each account (by id) has used, as last saved."""
        rows = await self._engine.query(_ALL, short=False)
        return {account_id: _usage(*counts) for account_id, *counts in rows}

    async def bans(self) -> Sequence[Ban]:
        """Return the latest ban of each key that has one, including ended ones, which lengthen the next."""
        return [Ban(*row) for row in await self._engine.query(_BANS, short=False)]

    @transaction
    def save(self, usage: Mapping[int, Usage], bans: Sequence[Ban], activity: Activity = NO_ACTIVITY) -> Work[None]:
        """Save usage by account id and new bans, and add to the usage history, in one transaction.

        A successor to which a key was rotated after its ban began gets the ban too.
        """
        # In ascending order, as in every transaction, so that two of them never wait for each other.
        counts = [(*minute, *day, account_id) for account_id, (minute, day) in sorted(usage.items())]
        if counts:
            yield Commands(_SAVE_USAGE, counts)
        changed = False
        for key_id, ban in sorted({ban.key_id: ban for ban in bans}.items()):
            if (yield Query(_LOCK_KEY, (key_id,))):  # after a rotation under way, so that its successor is found
                changed |= yield from _save_ban(ban)
        if changed:
            yield ACCESS_CHANGED
        yield from save_activity(activity)


def _save_ban(ban: Ban) -> Work[bool]:
    """Save a ban of a key and of its successors; return whether anything changed."""
    changed = bool((yield Query(_SAVE_BAN, (ban.key_id, ban.began, ban.until, ban.level))))
    if changed:
        fields = {"began": ban.began, "until": ban.until, "level": ban.level, "reason": _REASON}
        if ban.strikes is not None:
            fields["strikes"] = ban.strikes
        yield record(Actor(SERVICE, ban.began), "key.ban", f"key:{ban.key_id}", Change(None, fields))
    for successor, created_at in (yield Query(_SUCCESSOR, (ban.key_id,))):
        if inherits(ban, created_at):
            changed |= yield from _save_ban(replace(ban, key_id=successor))
    return changed


def _usage(minute_start: int, minute_used: int, day_start: int, day_used: int) -> Usage:
    return Usage(Count(minute_start, minute_used), Count(day_start, day_used))
