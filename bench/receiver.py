"""A receiver of webhooks that takes every message at once, and knows when it came."""

import asyncio
import re
import threading
import time
from collections.abc import Sequence
from typing import Self

_ID = re.compile(rb'"id":(\d+)')
_OK = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


class Receiver(threading.Thread):
    """Listens on a port of this host, in a thread. `orders` counts what was delivered."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.url = ""
        self.orders = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._arrived = threading.Condition()
        self._awaited, self._missing = 0, 0
        self._came_at = 0.0

    def __enter__(self) -> Self:
        self.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()

    def run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._receive, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/orders"
        self._ready.set()
        self._loop.run_forever()
        server.close()

    def expect(self, order_id: int, times: int) -> None:
        """Note when this order has come so many times."""
        with self._arrived:
            self._awaited, self._missing = order_id, times

    def came_at(self, timeout: float) -> float:
        """Wait for the order that is expected; return when it had come, as `time.perf_counter` says.

        Raises TimeoutError after so many seconds.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: not self._missing, timeout):
                raise TimeoutError
            return self._came_at

    def await_quiet(self) -> None:
        """Return when nothing has come for a second."""
        orders = -1
        while orders != self.orders:
            orders = self.orders
            time.sleep(1)

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            self._note([int(number) for number in _ID.findall(body)])
            writer.write(_OK)
            await writer.drain()
        except (OSError, EOFError):  # of a server that is ended
            pass
        finally:
            writer.close()

    def _note(self, orders: Sequence[int]) -> None:
        with self._arrived:
            self.orders += len(orders)
            if self._missing and self._awaited in orders:
                self._missing, self._came_at = self._missing - 1, time.perf_counter()
                self._arrived.notify_all()
