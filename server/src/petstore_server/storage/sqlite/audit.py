"""The audit log in SQLite. Implements `ports.Audit`."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import apsw

from petstore_server.ports import Actor, AuditEntry
from petstore_server.storage.sqlite.connections import rows
from petstore_server.storage.sqlite.reader import Reader

_PAGE = 500
_ENTRIES = """
    SELECT id, at, actor, action, subject, "before", "after" FROM audit
    WHERE (at, id) > (?, ?) ORDER BY at, id LIMIT ?
"""


def record(connection: apsw.Connection, actor: Actor, action: str, subject: str, before: Any, after: Any) -> None:
    """Add an entry within the transaction of what it tells of."""
    connection.execute(
        'INSERT INTO audit (at, actor, action, subject, "before", "after") VALUES (?, ?, ?, ?, ?, ?)',
        (actor.at, actor.name, action, subject, _json(before), _json(after)),
    )


class SqliteAudit:
    """The audit log of one store."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def entries(self, since: float | None = None) -> AsyncIterator[AuditEntry]:
        """The entries from `since` on, oldest first. They are read a page at a time; no transaction stays open."""
        # No id is below 1: this stands before every entry of the moment.
        last = (float("-inf") if since is None else since, 0)
        while page := await self._reader.run(partial(_page, last=last)):
            for entry in page:
                yield entry
            last = page[-1].at, page[-1].id


def _page(connection: apsw.Connection, last: tuple[float, int]) -> list[AuditEntry]:
    found = rows(connection, _ENTRIES, (*last, _PAGE))
    return [
        AuditEntry(entry_id, at, actor, action, subject, _value(before), _value(after))
        for entry_id, at, actor, action, subject, before, after in found
    ]


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
