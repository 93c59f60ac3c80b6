"""For tests of programs that use this client: a service in memory, and a clock that never really sleeps.

fake = FakePetstore([Order(id=7)])
fake.then(RateLimited(30), Dropped(applied=True))  # affect the next requests, one each
with fake.client() as petstore:  # or `with fake.installed():` for clients that the program makes itself
    petstore.cancel_order(7)
assert fake.cancelled == {7}
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
    NotHeld,
    RateLimited,
    Raw,
    Serve,
    Slow,
    TimedOut,
    Unreachable,
)
from petstore_client.testing.service import FakePetstore, Received
from petstore_client.testing.store import Receiver

__all__ = [
    "Answered", "Banned", "CutOff", "Dropped", "Failing", "FakeClock", "FakePetstore", "Fault", "KeyInUse",
    "NotHeld", "RateLimited", "Raw", "Received", "Receiver", "Serve", "Slow", "TimedOut", "Unreachable",
]  # fmt: skip
