"""Reading on a thread while earlier items are still being handled."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


async def read_ahead(items: Iterator[T]) -> AsyncGenerator[T]:
    """Yield the items, of which a thread reads the next one while the caller handles the last.

    The thread is a daemon: input that never comes (a terminal, a pipe) does not keep the process from ending.
    """
    reader = _Reader(items, asyncio.get_running_loop())
    threading.Thread(target=reader.run, name="petstore-read-ahead", daemon=True).start()
    try:
        while True:
            item, error = await reader.results.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
            reader.room.release()
    finally:
        reader.stopped.set()
        reader.room.release()


class _Reader(Generic[T]):
    """The part on the thread: delivers one item for each time that `room` is released."""

    def __init__(self, items: Iterator[T], loop: asyncio.AbstractEventLoop) -> None:
        self._items = items
        self._loop = loop
        self.results: asyncio.Queue[tuple[T | None, BaseException | None]] = asyncio.Queue()
        self.room = threading.Semaphore(1)
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            for item in self._items:
                self.room.acquire()
                if self.stopped.is_set():
                    return
                self._deliver(item, None)
            self._deliver(None, None)
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            self._deliver(None, error)

    def _deliver(self, item: T | None, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self.results.put_nowait, (item, error))
