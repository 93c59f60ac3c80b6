"""What may happen to a request, for `FakePetstore.then`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import httpx2
import msgspec

from petstore_client.clock import Clock


class Raw(NamedTuple):
    """An answer as it goes out. The body comes in `pieces`, each `pause` seconds after the one before it, and breaks
    off at its end where `cut` is set."""

    status: int
    headers: dict[str, str]
    pieces: tuple[bytes, ...]
    pause: float = 0.0
    cut: bool = False


Serve = Callable[[], Raw]


class Happening(Protocol):
    """Something that happens to one request. `serve` carries the request out and gives the answer as it would be."""

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        """The answer that goes out; or raises an httpx2 exception, as a broken connection does."""


@dataclass(frozen=True)
class RateLimited:
    """429. `retry_after` is the header as text, or whole seconds; None leaves it out. `headers` override others."""

    retry_after: int | str | None = 60
    headers: Mapping[str, str] = field(default_factory=dict)

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        more = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return error(429, "rate_limit_exceeded", "The limit is used up.", {**more, **self.headers})


@dataclass(frozen=True)
class Banned:
    """429 `api_key_banned`, for so many seconds."""

    seconds: int = 120

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        return error(429, "api_key_banned", "This key is banned.", {"retry-after": str(self.seconds)})


@dataclass(frozen=True)
class Dropped:
    """The connection breaks without an answer, after the request was carried out or, unless `applied`, before it."""

    applied: bool = True

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        if self.applied:
            serve()
        raise httpx2.RemoteProtocolError("Server disconnected without sending a response.", request=request)


@dataclass(frozen=True)
class TimedOut:
    """No answer within the client's timeout, which passes on the clock (60 s where there is none)."""

    applied: bool = True

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        if self.applied:
            serve()
        clock.sleep(request.extensions.get("timeout", {}).get("read") or 60.0)
        raise httpx2.ReadTimeout("timed out", request=request)


@dataclass(frozen=True)
class Unreachable:
    """No connection can be made."""

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        raise httpx2.ConnectError("Connection refused", request=request)


@dataclass(frozen=True)
class Failing:
    """A 5xx, after the request was carried out where `applied`."""

    status: int = 503
    retry_after: int | None = None
    applied: bool = False

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        if self.applied:
            serve()
        more = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        code = "service_unavailable" if self.status == 503 else "internal_error"
        return error(self.status, code, "The service cannot answer just now.", more)


@dataclass(frozen=True)
class CutOff:
    """The answer begins well, and its body breaks off after so many bytes."""

    after: int

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        answer = serve()
        return answer._replace(pieces=(b"".join(answer.pieces)[: self.after],), cut=True)


@dataclass(frozen=True)
class Slow:
    """The body comes in pieces of so many bytes, with so many seconds between them."""

    pause: float
    size: int = 1000

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        answer = serve()
        body = b"".join(answer.pieces)
        return answer._replace(
            pieces=tuple(body[at : at + self.size] for at in range(0, len(body), self.size)), pause=self.pause
        )


@dataclass(frozen=True)
class Redirected:
    """308 to another address."""

    location: str

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        return Raw(308, {"location": self.location}, ())


@dataclass(frozen=True)
class Answered:
    """Any other answer, such as a proxy's page."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})

    def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        return Raw(self.status, dict(self.headers), (self.body,) if self.body else ())


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Raw:
    """An answer with the Error record."""
    body = msgspec.json.encode({"code": code, "message": message, "status": status})
    return Raw(status, {"content-type": "application/json", **(headers or {})}, (body,))
