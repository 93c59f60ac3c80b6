"""The state of the service on one host."""

from typing import Literal, NamedTuple

State = Literal["ready", "degraded", "not ready"]
STATES: tuple[State, ...] = "ready", "degraded", "not ready"  # the best first


class HostHealth(NamedTuple):
    """The state of the service on a host, with its reason, since when, and when that was found (Unix seconds).

    `stopped`: the service there was stopped in order, so that its state is over.
    """

    host: str
    state: State
    reason: str
    since: float
    checked_at: float
    stopped: bool = False
