"""The responses of the service by hour, of all hosts together: how many failed, and how long they took."""

from collections import Counter
from collections.abc import Mapping

from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import ResponseCounts
from petstore_server.store.engine import Part, transaction
from petstore_server.store.statements import Execute, ExecuteMany, Work

KEPT_DAYS = 8  # the overview shows a week

_FAILED = "failed"
_ADD = """
    INSERT INTO petstore.response_history (start, measure, number) VALUES (%s, %s, %s)
    ON CONFLICT (start, measure) DO UPDATE SET number = response_history.number + excluded.number
"""


class Responses(Part):
    """Hours are their starts in Unix seconds."""

    @transaction
    def add(self, counted: Mapping[int, ResponseCounts]) -> Work[None]:
        """Add what a host has counted, by hour. Forgets hours that are KEPT_DAYS older than the last of these."""
        rows = [
            (hour, measure, number)
            for hour, counts in sorted(counted.items())
            for measure, number in sorted({_FAILED: counts.failed, **_texts(counts.durations)}.items())
            if number
        ]
        yield ExecuteMany(_ADD, rows)
        yield Execute("DELETE FROM petstore.response_history WHERE start < %s", (max(counted) - KEPT_DAYS * DAY,))

    async def hours(self, start: int, end: int) -> dict[int, ResponseCounts]:
        """The hours with responses that begin at `start` or later, before `end`, ascending."""
        sql = "SELECT start, measure, number FROM petstore.response_history WHERE start >= %s AND start < %s"
        found: dict[int, Counter[str]] = {}
        for hour, measure, number in await self._engine.query(f"{sql} ORDER BY start", (start, end), short=False):
            found.setdefault(hour, Counter())[measure] = number
        return {hour: ResponseCounts(counts.pop(_FAILED, 0), _bounds(counts)) for hour, counts in found.items()}


def _texts(durations: Mapping[float, int]) -> dict[str, int]:
    return {repr(bound): number for bound, number in durations.items()}


def _bounds(counts: Mapping[str, int]) -> dict[float, int]:
    return {float(bound): number for bound, number in counts.items()}
