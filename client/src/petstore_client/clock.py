"""Time, passed in: the real clock here, one that needs no sleep in `petstore_client.testing`."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What this client asks of time."""

    def now(self) -> float:
        """The time of day, in Unix seconds."""

    def monotonic(self) -> float:
        """Seconds since some moment, on a clock that nobody sets."""

    def sleep(self, seconds: float) -> None:
        """Return after this many seconds, not before."""

    async def sleep_async(self, seconds: float) -> None:
        """The same, awaited."""


class SystemClock:
    """The clock of this host."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
