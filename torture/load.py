"""A load in a separate process: many connections that each send one request after the other."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

_CHUNK = 4096
_LATE_SECONDS = 5.0
"""For which responses are awaited after the end."""


@dataclass
class Load:
    """What is sent.

    `first` is the first order or idempotency key to be used; after so many `numbers` it is used again. `pause` is the
    seconds between the requests of a connection. A `slow` connection reads 4 KiB ten times a second. `nice` is the
    niceness of the process.
    """

    port: int
    key: str
    kind: str
    connections: int
    seconds: float
    pause: float = 0.0
    first: int = 1
    numbers: int = 10_000_000
    slow: bool = False
    nice: int = 0


@dataclass
class Measured:
    """The latencies in milliseconds of what was answered and of what got 503, and how often each status came."""

    served: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    without_retry_after: int = 0


def percentile(values: list[float], share: float) -> float:
    """Milliseconds below which this share of the values is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _requests(load: Load) -> Iterator[bytes]:
    head = f"Host: x\r\nAuthorization: Bearer {load.key}\r\n"
    for sent in count():
        number = load.first + sent % load.numbers
        if load.kind == "list":
            yield f"GET /v1/store/orders HTTP/1.1\r\n{head}\r\n".encode()
        elif load.kind == "page":
            yield f"GET /v2/store/orders?limit=20&petId={number % 100} HTTP/1.1\r\n{head}\r\n".encode()
        elif load.kind == "cancel":
            yield f"DELETE /v1/store/orders/{number} HTTP/1.1\r\n{head}\r\n".encode()
        else:
            body = '{"petId":1,"quantity":1}'
            more = f"Idempotency-Key: load-{number}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            yield f"POST /v2/store/orders HTTP/1.1\r\n{head}{more}\r\n\r\n{body}".encode()


async def measure(load: Load) -> Measured:
    """Send the load, and measure."""
    measured, requests, ends = Measured(), _requests(load), time.monotonic() + load.seconds
    tasks = [asyncio.create_task(_connection(load, requests, measured, ends)) for _ in range(load.connections)]
    _, late = await asyncio.wait(tasks, timeout=load.seconds + _LATE_SECONDS)
    for task in late:
        task.cancel()
    measured.statuses["late"] += len(late)
    return measured


async def _connection(load: Load, requests: Iterator[bytes], measured: Measured, ends: float) -> None:
    while time.monotonic() < ends:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", load.port, limit=_CHUNK if load.slow else 1 << 20
            )
            while (began := time.monotonic()) < ends:
                writer.write(next(requests))
                head = await reader.readuntil(b"\r\n\r\n")
                await _skip_body(reader, head, slow=load.slow)
                status, milliseconds = head[9:12].decode(), 1000 * (time.monotonic() - began)
                measured.statuses[status] += 1
                (measured.refused if status == "503" else measured.served).append(milliseconds)
                measured.without_retry_after += status == "503" and b"\r\nretry-after: " not in head.lower()
                if load.pause:
                    await asyncio.sleep(load.pause)
            writer.close()
        except (OSError, EOFError):
            measured.statuses["broken"] += 1
            await asyncio.sleep(0.05)


async def _skip_body(reader: asyncio.StreamReader, head: bytes, *, slow: bool) -> None:
    left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    while left:
        left -= len(await reader.read(min(left, _CHUNK if slow else 1 << 20)))
        if slow:
            await asyncio.sleep(0.1)
        if reader.at_eof() and left:
            raise EOFError


def run(load: Load) -> Measured:
    """Send the load from this process, which is for nothing else."""
    import uvloop

    os.nice(load.nice)
    return uvloop.run(measure(load))
