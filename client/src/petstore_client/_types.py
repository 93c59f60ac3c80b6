"""Types that callers see: records, events for hooks, and the clock; and the key, which they do not see."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from datetime import datetime
from typing import Annotated, Any, Protocol

from msgspec import DecodeError, Meta, Struct, field, to_builtins

from petstore_client.errors import PetstoreError

Timestamp = Annotated[datetime, Meta(tz=True)]
"""A datetime with an offset; one without is rejected because it is ambiguous."""

_RFC_3339 = r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):\d\d:\d\d(\.\d{1,6}0*)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"

UNDECODABLE = (DecodeError, UnicodeDecodeError, RecursionError)  # malformed JSON, or another record


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base class of the records of the API."""

    def to_dict(self) -> dict[str, Any]:
        """The record as the API sends it: JSON names and JSON values, without the fields that are None."""
        return to_builtins(self)  # type: ignore[no-any-return]


class Order(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An order. A field without a value is None; fields that this version does not know are ignored.

    `ship_date` is the expected or actual ship date, an aware datetime with microseconds. Integers are exact.
    """

    id: int | None = None
    pet_id: int | None = field(default=None, name="petId")
    quantity: int | None = None
    ship_date: Timestamp | None = field(default=None, name="shipDate")
    complete: bool | None = None


class Pet(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pet. A field without a value is None."""

    id: int | None = None
    name: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEvent:
    """A successful response, when its headers have arrived.

    `operation` is the operationId, `attempts` the number of requests. Names of `headers` may be written in any case.
    """

    operation: str
    status: int
    request_id: str
    etag: str | None
    attempts: int
    headers: Mapping[str, str] = attribute(default_factory=dict)

    @property
    def replayed(self) -> bool:
        """Whether the order was placed by an earlier request with the same idempotency key."""
        return self.headers.get("idempotency-replayed") == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryEvent:
    """Attempt number `attempt`, from 1, failed and is repeated after `wait` seconds (or when the gate opens)."""

    operation: str
    attempt: int
    wait: float
    error: PetstoreError
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitEvent:
    """A call that a limit delays by `wait` seconds, until `retry_at` (aware, UTC).

    `refused` is True if the server responded 429, False if the client delayed the call before sending it. `waits` is
    False if the call fails with RateLimitError instead of waiting.
    """

    operation: str
    wait: float
    retry_at: datetime
    refused: bool
    waits: bool
    request_id: str


OnRetry = Callable[[RetryEvent], object] | None
OnRateLimit = Callable[[RateLimitEvent], object] | None
OnResponse = Callable[[ResponseEvent], object] | None


class Secret:
    """An API key that is hidden from repr(), copy and pickle."""

    __slots__ = ("text",)

    def __init__(self, text: Any) -> None:  # a str, once `read_target` has checked it
        self.text: str = text

    def __repr__(self) -> str:
        return "'***'"

    def __reduce__(self) -> str:
        raise TypeError("An API key cannot be pickled; make the client in the process that uses it.")

    def redact(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self.text, "***")


class Clock(Protocol):
    """The time source of a client. `petstore_client.testing.FakeClock` is one that never really sleeps."""

    def now(self) -> float:
        """The time of day, in Unix seconds."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, on a clock that is never set."""

    def sleep(self, seconds: float) -> None:
        """Block for this many seconds."""

    async def sleep_async(self, seconds: float) -> None:
        """Suspend the task for this many seconds."""


class SystemClock:
    """The clock of this host."""

    now, monotonic, sleep = staticmethod(time.time), staticmethod(time.monotonic), staticmethod(time.sleep)

    async def sleep_async(self, seconds: float) -> None:
        import asyncio  # which blocking programs do not load

        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def read_timestamp(text: str) -> datetime:
    """An RFC 3339 date-time with an offset, as an aware datetime, read as the service reads it. Raises ValueError."""
    if not re.fullmatch(_RFC_3339, text, re.ASCII):
        raise ValueError(text)
    return datetime.fromisoformat(text.upper())
