"""A proxy for TCP that delays, silences and cuts the connections between a server and what it depends on."""

import asyncio
from contextlib import suppress
from typing import Self

from testing.listening import Listening


class Proxy(Listening):
    """Forwards to a port of this host, after `delay` seconds; while `silent`, no response comes back.

    While `first` is a number, only so many bytes of a response come back, and the others once `rest` is set.
    """

    def __init__(self, target: int) -> None:
        super().__init__()
        self.target = target
        self.delay = 0.0
        self.silent = False
        self.first: int | None = None
        self.rest = asyncio.Event()
        self.refusing = False
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._open:
            writer.transport.abort()

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.refusing = True
        self.rest.set()
        self.cut()
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        with suppress(OSError):
            other_reader, other = await asyncio.open_connection("127.0.0.1", self.target)
            self._open |= {writer, other}
            try:
                await asyncio.gather(self._pump(reader, other), self._pump(other_reader, writer, back=True))
            finally:
                self._open -= {writer, other}
                other.transport.abort()
        writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if back and self.first is not None:
                    writer.write(data[: self.first])
                    data = data[self.first :]
                    await self.rest.wait()
                if not (back and self.silent):
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
