"""Time limits of calls to Redis and PostgreSQL, and of changes that wait for these (D19).

A response that has arrived is read even after a pause of this process.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

LAST_LOOK_SECONDS = 0.02
"""For how long a response is still read after a pause of this process."""


class Timeouts(NamedTuple):
    """How many seconds calls for which requests wait may take."""

    lock: float = 1.1
    """For a lock of PostgreSQL, which looks for a deadlock after a second: the transaction is then repeated."""
    statement: float = 1.3
    """For one message to PostgreSQL, which ends its statement a little earlier."""
    total: float = 1.8
    """For a change or a read in PostgreSQL with all attempts, and for a free connection."""
    connect: float = 1.0
    """For a new connection to PostgreSQL."""
    all_hosts: float = 6.0
    """For which connecting to PostgreSQL goes on: of several hosts, the first may not respond."""
    counters: float = 0.2
    """For a response of Redis. Requests that wait for the next call fail with the one under way."""
    counters_connect: float = 1.0
    """For a new connection to Redis, and for what no request waits for."""


TIMEOUTS = Timeouts()
"""The limits of engines and counters that are made without others."""


@contextmanager
def expiring(at: float, expire: Callable[[], object]) -> Iterator[None]:
    """Call `expire` at a time of the event loop's clock unless the block has ended.

    If this process itself stalled that long, it is called LAST_LOOK_SECONDS later: a response may have been received.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def last_look() -> None:
        nonlocal timer
        timer = loop.call_later(LAST_LOOK_SECONDS, expire)

    timer = loop.call_at(at - LAST_LOOK_SECONDS, last_look)
    try:
        yield
    finally:
        timer.cancel()
