"""For the tests of programs that use this client: a service in memory, and a clock on which nobody waits.

    clock = FakeClock()
    fake = FakePetstore([Order(id=7)], clock=clock)
    fake.then(RateLimited(30), Dropped(applied=True))
    with fake.client() as petstore:
        petstore.cancel_order(7)        # held up by a 429, then its answer is lost, then it finds the order cancelled
    assert fake.cancelled == {7}
    assert clock.slept >= 30

What `then` is given happens to the next requests, in turn; after that the service answers as the real one does.
"""

from petstore_client.testing.clock import FakeClock
from petstore_client.testing.happenings import (
    Answered,
    Banned,
    CutOff,
    Dropped,
    Failing,
    Happening,
    RateLimited,
    Redirected,
    Slow,
    TimedOut,
    Unreachable,
)
from petstore_client.testing.service import FakePetstore, Received

__all__ = [
    "Answered",
    "Banned",
    "CutOff",
    "Dropped",
    "Failing",
    "FakeClock",
    "FakePetstore",
    "Happening",
    "RateLimited",
    "Received",
    "Redirected",
    "Slow",
    "TimedOut",
    "Unreachable",
]
