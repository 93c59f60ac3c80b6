"""One question to PostgreSQL for all who ask at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from petstore_server.domain.errors import ServiceUnavailable

Result = TypeVar("Result")


class Shared(Generic[Result]):
    """Asks again and again while somebody waits; everybody gets an answer that was asked for after they came."""

    def __init__(self, ask: Callable[[], Awaitable[Result]]) -> None:
        self._ask = ask
        self._waiting: asyncio.Future[Result] | None = None
        self._asking: asyncio.Task[None] | None = None

    async def response(self) -> Result:
        """The answer. Raises what asking raises; who waits while the store is found unusable is told so at once."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
            self._waiting.add_done_callback(_retrieve)
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask_on())
        return await asyncio.shield(self._waiting)

    async def close(self) -> None:
        """Wait for the question under way."""
        if self._asking is not None:
            await self._asking

    async def _ask_on(self) -> None:
        while (waiting := self._waiting) is not None:
            self._waiting = None
            try:
                result = await self._ask()
            except ServiceUnavailable as error:
                later, self._waiting = self._waiting, None
                _fail(waiting, error)
                _fail(later, ServiceUnavailable(error.reason))
            except Exception as error:  # noqa: BLE001 - a defect is for the callers, and must not end the asking
                _fail(waiting, error)
            else:
                waiting.set_result(result)
        self._asking = None


def _fail(waiting: asyncio.Future[Any] | None, error: Exception) -> None:
    if waiting is not None:
        waiting.set_exception(error)


def _retrieve(waiting: asyncio.Future[Any]) -> None:
    """Take note of a failure even if every caller has gone away: asyncio would log it as forgotten."""
    if not waiting.cancelled():
        waiting.exception()
