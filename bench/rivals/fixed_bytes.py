"""A uvloop protocol that sends the same response to whatever arrives: what the event loop and the kernel allow.

    python bench/rivals/fixed_bytes.py PORT FILE

It parses nothing, so the load must not pipeline requests. FILE holds the body of the response.
"""

import asyncio
import sys
from pathlib import Path
from typing import cast

import uvloop

_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"


class FixedBytes(asyncio.Protocol):
    """One connection."""

    def __init__(self, response: bytes) -> None:
        self._response = response
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._response)


async def serve(port: int, body: bytes) -> None:
    """Serve on a port of the loopback interface until the process is ended."""
    response = _HEAD.format(length=len(body)).encode() + body
    server = await asyncio.get_running_loop().create_server(lambda: FixedBytes(response), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2]).read_bytes()))
