"""Effects: what a call asks its driver to do. No I/O.

A call is a generator of effects. The driver of each client performs an effect and sends its outcome back in, or throws
the exception that it raised.
"""

from collections.abc import Generator
from typing import Any, Generic, NamedTuple, TypeVar

from petstore_client._gate import Ticket
from petstore_client._types import Order

T = TypeVar("T")


class Sleep(NamedTuple):
    """Wait for this many seconds; the outcome is None."""

    seconds: float


class Queue(NamedTuple):
    """Wait until the ticket is decided, at most this many seconds; the outcome is None."""

    ticket: Ticket
    seconds: float


class Send(NamedTuple):
    """Send a request; the outcome is a Reply. A previous response that is still open is closed first.

    `timeout` is an httpx2.Timeout; `content` is the body, or None.
    """

    method: str
    url: str
    headers: dict[str, str]
    timeout: Any
    content: bytes | None = None


class Read(NamedTuple):
    """Read on in the body of the response; the outcome is bytes as they arrive, or None at the end."""


class Emit(NamedTuple):
    """Hand these orders to the caller who iterates; the outcome is None."""

    orders: list[Order]


Effect = Sleep | Queue | Send | Read | Emit
Effects = Generator[Effect, Any, T]


class Exchange(Generic[T]):
    """A call in progress, as its driver sees it. `result` is set once an effect of None has been returned."""

    result: T

    def __init__(self, effects: Effects[T]) -> None:
        self._effects = effects

    def resume(self, outcome: object = None) -> Effect | None:
        """The next effect, given the outcome of the previous one; None at the end. Raises PetstoreError."""
        try:
            return self._effects.send(outcome)
        except StopIteration as end:
            self.result = end.value
            return None

    def fail(self, error: BaseException) -> Effect | None:
        """The next effect, if the previous one raised an exception."""
        try:
            return self._effects.throw(error)
        except StopIteration as end:
            self.result = end.value
            return None

    def end(self) -> None:
        """End the call in any state, and release its place at the gate."""
        self._effects.close()
