"""The state of the service on each host, so that every console shows all, and a restart forgets none."""

from petstore_server.domain.health import HostHealth
from petstore_server.domain.timestamps import DAY
from petstore_server.store.engine import Part, transaction
from petstore_server.store.statements import Execute, Query, Row, Work

_FORGET = "DELETE FROM petstore.health WHERE checked_at NOT BETWEEN %s AND %s"
_SAVE = """
    INSERT INTO petstore.health (host, state, reason, since, checked_at, stopped) VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (host) DO UPDATE SET state = excluded.state, reason = excluded.reason, since = excluded.since,
        checked_at = excluded.checked_at, stopped = excluded.stopped
"""
_SELECT = "SELECT host, state, reason, since, checked_at, stopped FROM petstore.health"


class HealthStates(Part):
    @transaction
    def beat(self) -> Work[None]:
        """Write something small, which proves that the store can be written."""
        yield Execute(self._engine.dialect.heartbeat)

    @transaction
    def save(self, health: HostHealth) -> Work[list[HostHealth]]:
        """Store the state of a host, and return those of all hosts.

        One that was not checked for a day is forgotten, also if it was by a clock that was ahead.
        """
        yield Execute(_FORGET, (health.checked_at - DAY, health.checked_at + DAY))
        yield Execute(_SAVE, (*health[:-1], int(health.stopped)))
        return [_health(row) for row in (yield Query(f"{_SELECT} ORDER BY host"))]

    async def find(self, host: str) -> HostHealth | None:
        """The state of a host as it was last stored, None if it was not."""
        rows = await self._engine.query(f"{_SELECT} WHERE host = %s", (host,))
        return _health(rows[0]) if rows else None


def _health(row: Row) -> HostHealth:
    return HostHealth._make((*row[:-1], bool(row[-1])))
