"""What a page shows of a source that may be slow or down: a value, its age, or why there is none."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from petstore_server.domain.errors import ServiceUnavailable

T = TypeVar("T")

SLOW = "This was not read in time: its source is slow, or down."
_BROKEN = "This cannot be read; the log of the server says why."

_log = logging.getLogger(__name__)


class Reading(NamedTuple, Generic[T]):
    """A value, None if there is none yet; the seconds since it was read; and why it is not current, or empty."""

    value: T | None = None
    age: float = 0.0
    problem: str = ""


class Pace(NamedTuple):
    """How long a page waits for a value that is old, and for one that was never read, in seconds.

    A value is kept for `rest` times as long as it took to read: those of a small store are current, those of a large
    one are not, and reading them takes at most that part of the time.
    """

    old: float = 0.02
    missing: float = 0.25
    rest: float = 10.0


async def read_within(work: Coroutine[Any, Any, T], seconds: float) -> Reading[T]:
    """Read a value, and cancel that after so many seconds. Raises what it raises, except ServiceUnavailable."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            return Reading(await work)
    except TimeoutError:
        return Reading(problem=SLOW)
    except ServiceUnavailable as error:
        return Reading(problem=error.explanation)


class Cached(Generic[T]):
    """Reads a value behind the pages: once for concurrent callers, and again at most every `seconds`."""

    def __init__(self, read: Callable[[], Awaitable[T]], pace: Pace, seconds: float = 0.0) -> None:
        self._read = read
        self._pace = pace
        self._seconds = self._kept_seconds = seconds
        self._read_at: float | None = None
        self._value: T | None = None
        self._problem = ""
        self._reading: asyncio.Task[None] | None = None

    async def get(self) -> Reading[T]:
        """The value, read again if it is old and that is quick; else the last one. Never raises."""
        if self._read_at is None or monotonic() - self._read_at >= self._kept_seconds:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._update())
            await asyncio.wait({self._reading}, timeout=self._pace.missing if self._read_at is None else self._pace.old)
        if self._read_at is None:
            return Reading(problem=self._problem)
        return Reading(self._value, monotonic() - self._read_at, self._problem)

    async def close(self, wait_seconds: float = 5.0) -> None:
        """Wait for a value that is being read, and cancel that after `wait_seconds`.

        It may hold a connection that closes only after several steps, or a thread that cannot be cancelled.
        """
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=wait_seconds)
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading

    async def _update(self) -> None:
        began = monotonic()
        try:
            self._value = await self._read()
        except ServiceUnavailable as error:
            self._problem = error.explanation
        except Exception as error:  # noqa: BLE001 - a page shows what it has
            _log.error("console page lacks a value", exc_info=error)
            self._problem = _BROKEN
        else:
            self._read_at, self._problem = monotonic(), ""
            self._kept_seconds = max(self._seconds, self._pace.rest * (self._read_at - began))
