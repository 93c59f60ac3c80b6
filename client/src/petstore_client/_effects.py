"""Effects: what a call asks its driver to do. No I/O.

A call is a generator of effects, and so is an iteration. The driver of each client performs an effect and sends its
outcome back in, or throws the exception that it raised.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from petstore_client._gate import Ticket

T = TypeVar("T")


class Sleep(NamedTuple):
    """Wait for this many seconds; the outcome is None."""

    seconds: float


class Queue(NamedTuple):
    """Wait until the ticket is decided, at most this many seconds; the outcome is None."""

    ticket: Ticket
    seconds: float


class Send(NamedTuple):
    """Send a request; the outcome is a Reply. The driver closes its response before the next wait or request.

    `ends` is when reading from the connection ends, in monotonic seconds. `closings` is how often the gate had closed
    when the request passed it. Raises NotSent.
    """

    method: str
    url: str
    headers: dict[str, str]
    timeout: Any
    content: bytes | None
    ends: float
    closings: int


class NotSent(Exception):
    """The gate has closed while the request waited for a connection, so it was not sent."""


class Read(NamedTuple):
    """Read on in the body of the response; the outcome is bytes as they arrive, or None at the end.

    `ends` is as that of Send.
    """

    ends: float


class Emit(NamedTuple):
    """Hand these orders, of either version, to the caller who iterates; the outcome is None."""

    orders: list[Any]


Effect = Sleep | Queue | Send | Read | Emit
Effects = Generator[Effect, Any, T]
