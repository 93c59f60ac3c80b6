"""For tests of programs that use this client: a service in memory, and a clock that never really sleeps.

    clock = FakeClock()
    fake = FakePetstore([Order(id=7)], clock=clock)
    fake.then(RateLimited(30), Dropped(applied=True))
    with fake.client() as petstore:
        petstore.cancel_order(7)        # waits for a 429, then loses a response, then finds the order cancelled
    assert fake.cancelled == {7}
    assert clock.slept >= 30

The faults given to `then` affect the next requests, one each; after that the fake behaves like the real service. If the
program makes its clients itself, `with fake.installed():` intercepts them, and so does the pytest fixture
`fake_petstore` of `petstore_client.testing.pytest_plugin`.
"""

from petstore_client.testing.clock import FakeClock
from petstore_client.testing.faults import (
    Answered,
    Banned,
    CutOff,
    Dropped,
    Failing,
    Fault,
    KeyInUse,
    RateLimited,
    Slow,
    TimedOut,
    Unreachable,
)
from petstore_client.testing.service import FakePetstore, Received

__all__ = [
    "Answered", "Banned", "CutOff", "Dropped", "Failing", "FakeClock", "FakePetstore", "Fault", "KeyInUse",
    "RateLimited", "Received", "Slow", "TimedOut", "Unreachable",
]  # fmt: skip
