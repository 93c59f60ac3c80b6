"""A value that is expensive to compute, kept for a short time and computed once for concurrent callers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """Computes a value at most once in `seconds`, and at most in one part of the time in `times`."""

    def __init__(self, compute: Callable[[], Awaitable[T]], seconds: float, times: float = 0) -> None:
        self._compute = compute
        self._seconds = self._fresh_seconds = seconds
        self.times = times
        self._computed_at = 0.0
        self._value: T | None = None
        self._computing: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The value, computed again if it is old. Raises what computing it raises."""
        if self._value is None or self._is_old:
            return await asyncio.shield(self._start())
        return self._value

    def latest(self) -> T | None:
        """The last value, without waiting; None if there is none yet. An old one is computed again behind this call."""
        if self._is_old:
            self._start()
        return self._value

    @property
    def is_empty(self) -> bool:
        """Whether the value was never computed."""
        return self._value is None

    @property
    def age(self) -> float:
        """Seconds since the value was computed."""
        return monotonic() - self._computed_at

    async def soon(self, patience: float) -> T | None:
        """The value, computed again if it is old and that takes at most `patience` seconds; else the last one.

        None if there is none yet; then the computation goes on behind this call. Raises what computing it raises.
        """
        if self._is_old:
            computing = self._start()
            if (await asyncio.wait({computing}, timeout=patience))[0]:
                return await computing
        return self._value

    async def close(self, wait_seconds: float = 5.0) -> None:
        """Wait for a computation under way, and cancel it after `wait_seconds`.

        It may hold a connection that closes only after several steps, or a thread that cannot be cancelled.
        """
        if self._computing is not None:
            await asyncio.wait({self._computing}, timeout=wait_seconds)
            self._computing.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._computing

    @property
    def _is_old(self) -> bool:
        return self._value is None or monotonic() - self._computed_at >= self._fresh_seconds

    def _start(self) -> asyncio.Task[T]:
        if self._computing is None or self._computing.done():
            self._computing = asyncio.create_task(self._run())
            self._computing.add_done_callback(_retrieve)
        return self._computing

    async def _run(self) -> T:
        began = monotonic()
        value = await self._compute()
        self._value, self._computed_at = value, monotonic()
        self._fresh_seconds = max(self._seconds, self.times * (self._computed_at - began))
        return value


def _retrieve(task: asyncio.Task[T]) -> None:
    """Note a failure that no caller waits for: asyncio would log it."""
    if not task.cancelled():
        task.exception()
