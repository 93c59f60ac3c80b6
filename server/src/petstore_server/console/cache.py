"""A value that is expensive to compute, kept for a short time and computed once for concurrent callers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """Computes a value at most once in `seconds`."""

    def __init__(self, compute: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._compute = compute
        self._seconds = seconds
        self._computed_at = 0.0
        self._value: T | None = None
        self._computing: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The value, computed less than `seconds` ago. Raises what computing it raises."""
        if self._value is None or monotonic() - self._computed_at >= self._seconds:
            return await asyncio.shield(self._start())
        return self._value

    def latest(self) -> T | None:
        """The last value, without waiting; None if there is none yet. An old one is computed again behind this call."""
        if self._value is None or monotonic() - self._computed_at >= self._seconds:
            self._start()
        return self._value

    @property
    def age(self) -> float:
        """Seconds since the value was computed."""
        return monotonic() - self._computed_at

    async def close(self, wait_seconds: float = 5.0) -> None:
        """Wait for a computation under way, and cancel it after `wait_seconds`.

        It may hold a connection that closes only after several steps, or a thread that cannot be cancelled.
        """
        if self._computing is not None:
            await asyncio.wait({self._computing}, timeout=wait_seconds)
            self._computing.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._computing

    def _start(self) -> asyncio.Task[T]:
        if self._computing is None or self._computing.done():
            self._computing = asyncio.create_task(self._run())
            self._computing.add_done_callback(_retrieve)
        return self._computing

    async def _run(self) -> T:
        value = await self._compute()
        self._value, self._computed_at = value, monotonic()
        return value


def _retrieve(task: asyncio.Task[T]) -> None:
    """Note a failure that no caller waits for: asyncio would log it."""
    if not task.cancelled():
        task.exception()
