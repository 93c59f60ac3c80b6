"""Faults that can affect a request, for `FakePetstore.then`."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Protocol

import httpx2
import msgspec

from petstore_client._types import Clock

JSON = {"content-type": "application/json"}
NO_STORE = {**JSON, "cache-control": "no-store", "vary": "Accept-Encoding, Authorization"}


@dataclass(frozen=True, slots=True)
class Raw:
    """A response as it is sent: its body arrives in `pieces`, each after `pause` seconds.

    The connection breaks at its end if `cut` is set.
    """

    status: int
    headers: Mapping[str, str]
    _: KW_ONLY
    pieces: tuple[bytes, ...] = ()
    pause: float = 0.0
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRaw(Raw):
    """A response with what only the fake uses.

    `ban` is the duration in seconds of a ban that this response starts. A request for changes that found none may be
    held, and continues at the token `idle`.
    """

    ban: int = 0
    idle: str = ""


Serve = Callable[[], Raw]
"""Carries a request out, and returns the response of the service."""


class Fault(Protocol):
    """A fault of one request. `serve` carries the request out and returns the response without the fault."""

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        """The response to send. Raises an httpx2 exception to break the connection."""


@dataclass(frozen=True)
class RateLimited:
    """429. `retry_after` is the header: a string, whole seconds, or None to omit it. `headers` override other ones."""

    retry_after: int | str | None = 60
    headers: Mapping[str, str] = field(default_factory=dict)

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        return error(429, "rate_limit_exceeded", "The limit is used up.", self.retry_after, self.headers)


@dataclass(frozen=True)
class Banned:
    """429 `api_key_banned`, and the same for all requests within this many seconds."""

    seconds: int = 120

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        raw = error(429, "api_key_banned", "This key is banned.", self.seconds)
        return ServiceRaw(raw.status, raw.headers, pieces=raw.pieces, ban=self.seconds)


@dataclass(frozen=True)
class Dropped:
    """The connection breaks without a response: after the request was carried out if `applied`, otherwise before."""

    applied: bool = True

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        if self.applied:
            serve()
        raise httpx2.RemoteProtocolError("Server disconnected without sending a response.", request=request)


@dataclass(frozen=True)
class TimedOut:
    """No response within the client's timeout, which passes on the clock (60 s if there is none)."""

    applied: bool = True

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        if self.applied:
            serve()
        clock.sleep(request.extensions.get("timeout", {}).get("read") or 60.0)
        raise httpx2.ReadTimeout("timed out", request=request)


@dataclass(frozen=True)
class Unreachable:
    """No connection can be made."""

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        raise httpx2.ConnectError("Connection refused", request=request)


@dataclass(frozen=True)
class Failing:
    """A 5xx, after the request was carried out if `applied`."""

    status: int = 503
    retry_after: int | None = None
    applied: bool = False

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        if self.applied:
            serve()
        code = "service_unavailable" if self.status == 503 else "internal_error"
        return error(self.status, code, "The service is unavailable; retry later.", self.retry_after)


@dataclass(frozen=True)
class KeyInUse:
    """409 `idempotency_key_in_use`: the first request with the key is still being processed."""

    retry_after: int = 1

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        message = "A request with this Idempotency-Key is being processed; retry after Retry-After."
        return error(409, "idempotency_key_in_use", message, self.retry_after)


@dataclass(frozen=True)
class NotHeld:
    """A request for changes is answered at once, with Retry-After: the service holds too many already."""

    retry_after: int = 2

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        raw = serve()
        return replace(raw, headers={**raw.headers, "retry-after": str(self.retry_after)})


@dataclass(frozen=True)
class CutOff:
    """The response starts correctly, and its body ends early after this many bytes."""

    after: int

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        raw = serve()
        return replace(raw, pieces=(b"".join(raw.pieces)[: self.after],), cut=True)


@dataclass(frozen=True)
class Slow:
    """The body arrives in pieces of `size` bytes, each after `pause` seconds."""

    pause: float
    size: int = 1000

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        raw = serve()
        body = b"".join(raw.pieces)
        pieces = tuple(body[at : at + self.size] for at in range(0, len(body), self.size))
        return replace(raw, pieces=pieces, pause=self.pause)


@dataclass(frozen=True)
class Answered:
    """Any other response, such as a redirect or a page of a proxy."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        return Raw(self.status, self.headers, pieces=(self.body,) if self.body else ())


def error(
    status: int, code: str, message: str, retry_after: float | str | None = None, more: Mapping[str, str] | None = None
) -> Raw:
    """A response with the Error record."""
    body = msgspec.json.encode({"code": code, "message": message, "status": status})
    wait = {} if retry_after is None else {"retry-after": str(retry_after)}
    return Raw(status, {**JSON, "cache-control": "no-store", **wait, **(more or {})}, pieces=(body,))
