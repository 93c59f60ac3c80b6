"""How many requests the fake service admitted and refused, by hour."""

from collections import defaultdict
from datetime import UTC, datetime

from petstore_client.v2 import UsageEntry

HOUR, DAY = 3600, 86_400
MOST_ENTRIES = 1000


class History:
    """Counts of requests."""

    def __init__(self) -> None:
        self._hours: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])

    def count(self, now: float, refused: bool) -> None:
        """Count a request at this time, in Unix seconds."""
        self._hours[int(now) // HOUR * HOUR][refused] += 1

    def entries(self, seconds: int, start: float, end: float) -> list[UsageEntry]:
        """The hours or days (of this many seconds) that overlap the range from start to end, in Unix seconds."""
        sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        for hour, (admitted, refused) in sorted(self._hours.items()):
            begins = hour // seconds * seconds
            if begins + seconds > start and begins < end:
                sums[begins][0] += admitted
                sums[begins][1] += refused
        found = [
            UsageEntry(start=datetime.fromtimestamp(begins, UTC), admitted=admitted, refused=refused)
            for begins, (admitted, refused) in sums.items()
        ]
        return found[-MOST_ENTRIES:]
