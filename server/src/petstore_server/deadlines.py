"""Time limits of calls to Redis and PostgreSQL, and of changes that wait for these.

A response that has arrived is read even after a pause of this process.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LAST_LOOK_SECONDS = 0.02
"""For how long a response is still read after a pause of this process."""


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
