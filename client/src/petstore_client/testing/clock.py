"""A clock for tests that never really sleeps."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class FakeClock:
    """A clock that advances only when something sleeps on it, or when a test moves it.

    A sleep returns immediately and advances the clock by its duration; `slept` is the sum in seconds. Concurrent tasks
    sleep in the right order only within `run`, where asyncio itself uses this clock.
    """

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.slept = 0.0
        self._passed = 0.0
        self._set = now

    def now(self) -> float:
        """The time of day, in Unix seconds."""
        return self._set + self._passed

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += seconds

    def sleep(self, seconds: float) -> None:
        """Let time pass, and count it as slept."""
        self.slept += seconds
        self.advance(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Let time pass for a task, and count it as slept."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, _Loop):
            self.slept += seconds
            await asyncio.sleep(seconds)
        else:
            self.sleep(seconds)
            await asyncio.sleep(0)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Like `asyncio.run`, on a loop that uses this clock: it advances whenever all tasks wait."""
        with asyncio.Runner(loop_factory=self.new_event_loop) as runner:
            return runner.run(main)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of `run`, for an `asyncio.Runner` or a test framework."""
        return _Loop(self)


class _Selector(selectors.SelectSelector):
    """Advances the clock instead of waiting."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout is not None and timeout > 0:
            self._clock.advance(timeout)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_Selector(clock))
        self._fake_clock = clock

    def time(self) -> float:
        return self._fake_clock.monotonic()
