"""Time that tests set, for the server and for the client."""

from petstore_client import Clock as ClientClock

START = 1_793_000_000.25
"""The time at which every test starts, in Unix seconds."""


class Clock:
    """A clock of the server that tests set, in Unix seconds."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class OwnClock:
    """A clock of the client with another identity, such as that of another process: the two share no gate.

    It is `ahead` seconds ahead; after a long sleep, its process wakes `late` seconds late, as a busy one does.
    """

    def __init__(self, clock: ClientClock, *, ahead: float = 0.0, late: float = 0.0) -> None:
        self._clock = clock
        self._ahead = ahead
        self._late = late
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep

    def now(self) -> float:
        return self._clock.now() + self._ahead

    async def sleep_async(self, seconds: float) -> None:
        await self._clock.sleep_async(seconds + self._late * (seconds > 5))
