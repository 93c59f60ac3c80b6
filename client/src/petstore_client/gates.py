"""Which gate a client shares: one in a process for each base URL and key."""

import hashlib
import random
import threading
from weakref import WeakValueDictionary

from petstore_client.clock import Clock
from petstore_client.gate import Gate

_KEPT = 1000
_Name = tuple[str, str, Clock]  # tests bring clocks of their own, whose moments mean nothing to others

_lock = threading.Lock()
_in_use: WeakValueDictionary[_Name, Gate] = WeakValueDictionary()
_kept: dict[_Name, Gate] = {}


def gate_for(base_url: str, key: str, clock: Clock) -> Gate:
    """The gate of this base URL and key. It outlives its clients, for as long as it knows of a limit."""
    name = (base_url, hashlib.sha256(key.encode()).hexdigest(), clock)
    with _lock:
        gate = _in_use.get(name)
        if gate is None:
            gate = _in_use[name] = Gate(random.random)
        _kept[name] = gate
        if len(_kept) > _KEPT:
            _drop_idle()
        return gate


def _drop_idle() -> None:
    """Keep the table small in a program with many keys: a dropped gate lives on with the clients that hold it."""
    for name, gate in list(_kept.items()):
        if gate.idle(name[2].monotonic()):
            del _kept[name]
