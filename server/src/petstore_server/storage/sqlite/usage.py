"""What a limiter in process memory keeps in the store. Implements `ports.Ledger`."""

from collections.abc import Mapping, Sequence

import apsw

from petstore_server.domain.bans import Ban
from petstore_server.ports import Usage
from petstore_server.storage.rows import usage_of
from petstore_server.storage.sqlite.accounts import access_changed
from petstore_server.storage.sqlite.connections import rows
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.writer import Writer

# After a restore an account or a key may be gone that a running limiter still knows: it is passed over.
_SAVE_USAGE = """
    INSERT INTO usage (account_id, minute_start, minute_used, day_start, day_used)
    SELECT id, ?2, ?3, ?4, ?5 FROM accounts WHERE id = ?1
    ON CONFLICT (account_id) DO UPDATE SET
        minute_start = excluded.minute_start, minute_used = excluded.minute_used,
        day_start = excluded.day_start, day_used = excluded.day_used
"""
_SAVE_BAN = """
    INSERT INTO bans (key_id, began, until, level)
    SELECT id, ?2, ?3, ?4 FROM keys WHERE id = ?1
    ON CONFLICT (key_id) DO UPDATE SET began = excluded.began, until = excluded.until, level = excluded.level
    WHERE (began, until, level) IS NOT (excluded.began, excluded.until, excluded.level)
"""
_USAGE = "SELECT minute_start, minute_used, day_start, day_used FROM usage WHERE account_id = ?"


class SqliteUsage:
    """The usage and the bans of one store."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    async def find(self, account_id: int) -> Usage:
        """What the account has used, as last saved."""
        found = self._reader.now(_USAGE, (account_id,))
        return usage_of(*found[0]) if found else Usage()

    async def all(self) -> Mapping[int, Usage]:
        """What each account (by id) has used, as last saved."""
        return await self._reader.run(
            lambda connection: {
                account_id: usage_of(*counts)
                for account_id, *counts in rows(
                    connection, "SELECT account_id, minute_start, minute_used, day_start, day_used FROM usage"
                )
            }
        )

    async def bans(self) -> Sequence[Ban]:
        """The latest ban of each key that has one."""
        return await self._reader.run(
            lambda connection: [
                Ban(*row) for row in connection.execute("SELECT key_id, began, until, level FROM bans ORDER BY key_id")
            ]
        )

    async def save(self, usage: Mapping[int, Usage], bans: Sequence[Ban]) -> None:
        """Write down usage by account id and new bans, in one transaction."""
        counts = [(account_id, *minute, *day) for account_id, (minute, day) in usage.items()]
        latest = [(ban.key_id, ban.began, ban.until, ban.level) for ban in bans]

        def save(connection: apsw.Connection) -> None:
            connection.executemany(_SAVE_USAGE, counts)
            before = connection.total_changes()
            connection.executemany(_SAVE_BAN, latest)
            if connection.total_changes() > before:
                access_changed(connection)

        await self._writer.run(save)
