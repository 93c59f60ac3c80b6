"""The audit log in PostgreSQL. Implements `ports.Audit`."""

import json
from collections.abc import AsyncIterator
from typing import Any

from petstore_server.ports import Actor, AuditEntry
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import Session

_PAGE = 500
_INSERT = """
    INSERT INTO petstore.audit (at, actor, action, subject, before, after) VALUES (%s, %s, %s, %s, %s::json, %s::json)
"""
_ENTRIES = """
    SELECT id, at, actor, action, subject, before, after FROM petstore.audit
    WHERE (at, id) > (%s::double precision, %s::bigint) ORDER BY at, id LIMIT %s
"""


async def record(session: Session, actor: Actor, action: str, subject: str, before: Any, after: Any) -> None:
    """Add an entry within the transaction of what it tells of."""
    await session.execute(_INSERT, (actor.at, actor.name, action, subject, as_json(before), as_json(after)))


def as_json(value: Any) -> str | None:
    """The text of a JSON column, in ASCII, so that it can hold every text."""
    return None if value is None else json.dumps(value)


class PostgresAudit:
    """The audit log of one store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def entries(self, since: float | None = None) -> AsyncIterator[AuditEntry]:
        """The entries from `since` on, oldest first. They are read a page at a time; no transaction stays open."""
        # No id is below 1: this stands before every entry of the moment.
        last = (float("-inf") if since is None else since, 0)
        while page := await self._pool.rows(_ENTRIES, (*last, _PAGE)):
            for row in page:
                yield AuditEntry(*row)
            last = page[-1][1], page[-1][0]
