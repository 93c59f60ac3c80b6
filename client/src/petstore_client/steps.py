"""What a call asks of the world: the vocabulary between the policy, which does no I/O, and the two shells that do.

A call is a generator. It yields steps; a shell carries each out and sends the result back in, or throws what went
wrong: APIConnectionError for a failed Send or Read.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from petstore_client.gate import Ticket
from petstore_client.records import Order

T = TypeVar("T")


class Sleep(NamedTuple):
    """Wait; gives None."""

    seconds: float


class Queue(NamedTuple):
    """Wait until the ticket is decided on, at most this long; gives None."""

    ticket: Ticket
    seconds: float


class Send(NamedTuple):
    """Send a request; gives the Reply. The answer before it, if one is open, is closed."""

    method: str
    path: str
    headers: dict[str, str]


class Read(NamedTuple):
    """Read on in the answer's body; gives bytes as they come, or None at the end."""


class Emit(NamedTuple):
    """Hand these orders to whoever iterates; gives None."""

    orders: list[Order]


Step = Sleep | Queue | Send | Read | Emit
Steps = Generator[Step, Any, T]
