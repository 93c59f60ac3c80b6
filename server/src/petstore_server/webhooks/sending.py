"""Sending one signed message to a receiver, and reading its response (D24; Standard Webhooks 1.0.0)."""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

import httpcore2

from petstore_server import __version__
from petstore_server.domain.texts import escape_unsafe, hide_keys
from petstore_server.domain.webhooks import MAX_EXCERPT, Attempt, SigningSecrets, Webhook
from petstore_server.webhooks.addresses import Addresses, AddressRefused

ATTEMPT_SECONDS = 15.0  # for the look-up, the connection, the request and the response together
MAX_RESPONSE = 64 * 1024  # bytes that are read, with its header

_READ_BYTES = 4096
_MAX_ADDRESSES = 4  # of a name that are tried
_ERRORS = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)
_TOO_LATE = f"no response within {ATTEMPT_SECONDS:g} seconds"


class Exchange(NamedTuple):
    """An attempt with what was sent, and `retry_after`, for how many seconds the receiver asks to wait."""

    attempt: Attempt
    headers: Mapping[str, str]
    body: bytes
    retry_after: float | None = None


class Sender:
    """Sends messages, each over a new connection. `clock` gives Unix seconds."""

    def __init__(
        self, secrets: SigningSecrets, addresses: Addresses, proxy: str | None, clock: Callable[[], float]
    ) -> None:
        """A `proxy` looks up the names, and has to check the addresses itself."""
        self.secrets = secrets
        self.addresses = addresses
        self._clock = clock
        self._trust = ssl.create_default_context()
        self._proxy = None if proxy is None else _proxy(proxy, self._trust)

    async def send(self, webhook: Webhook, message_id: str, body: bytes) -> Exchange:
        """Make one attempt. It does not raise: what prevents a response is in the attempt's excerpt."""
        at, began = self._clock(), perf_counter()
        headers = {
            "host": urlsplit(webhook.url).netloc,
            "content-length": str(len(body)),
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": f"petstore-webhooks/{__version__}",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(at)),
            "webhook-signature": self.secrets.sign(webhook, message_id, body, at),
        }
        response = _Response()
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                await self._exchange(webhook.url, headers, body, response)
        except TimeoutError:
            response.problem = _TOO_LATE
        except AddressRefused as error:
            response.problem = f"not sent: the URL is refused, because {error}"
        except (*_ERRORS, OSError) as error:
            response.problem = f"no response: {_in_words(error)}"
        milliseconds = round((perf_counter() - began) * 1000)
        attempt = Attempt(at, response.status, milliseconds, _excerpt(response))
        return Exchange(attempt, headers, body, _retry_after(response.retry_after, at))

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes, response: "_Response") -> None:
        destination = self.addresses.destination(url)  # what is allowed may have changed
        found = None if self._proxy else await self.addresses.resolve(destination)
        # A proxy reads the host in the request, where an IPv6 address has brackets.
        host = f"[{destination.host}]" if self._proxy and ":" in destination.host else destination.host
        target = httpcore2.URL(scheme=destination.scheme, host=host, port=destination.port, target=destination.target)
        name = {"sni_hostname": destination.host.rstrip(".")}
        async with (
            httpcore2.AsyncConnectionPool(self._trust, self._proxy, network_backend=_Backend(found)) as connections,
            connections.stream("POST", target, headers=[*headers.items()], content=body, extensions=name) as received,
        ):
            response.status = received.status
            values = (value for header, value in received.headers if header.lower() == b"retry-after")
            response.retry_after = next(values, b"").decode("latin-1")
            async for chunk in received.aiter_stream():
                response.text += chunk


class _Response:
    """As much of a response as has arrived; `problem` is why there is no more."""

    status: int | None = None
    retry_after = ""
    text = b""
    problem = ""


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects to one of the addresses that were found for a name; without any, to the name."""

    def __init__(self, found: Sequence[str] | None) -> None:
        self._found = found
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        *others, last = (self._found or [host])[:_MAX_ADDRESSES]
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return _Stream(await self._inner.connect_tcp(address, port, ATTEMPT_SECONDS / _MAX_ADDRESSES))
        return _Stream(await self._inner.connect_tcp(last, port))


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection from which at most MAX_RESPONSE bytes are read, and few at a time.

    A response may have thousands of tiny parts. Other tasks run after each reading.
    """

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self._left = MAX_RESPONSE
        self.write, self.aclose, self.get_extra_info = inner.write, inner.aclose, inner.get_extra_info  # type: ignore[method-assign]

    async def read(self, max_bytes: int, *_: Any, **__: Any) -> bytes:
        if not self._left:
            raise httpcore2.ReadError(f"the response has more than {MAX_RESPONSE} bytes")
        part = await self._inner.read(min(max_bytes, _READ_BYTES, self._left))
        self._left -= len(part)
        return part

    async def start_tls(self, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(*arguments, **options))


def _proxy(url: str, trust: ssl.SSLContext) -> httpcore2.Proxy:
    parts = urlsplit(url)
    user, password = map(unquote_to_bytes, (parts.username or "", parts.password or ""))
    auth = None if parts.username is None else (user, password)
    return httpcore2.Proxy(url, auth, ssl_context=trust if parts.scheme == "https" else None)


def _in_words(error: Exception) -> str:
    match error:
        case httpcore2.ConnectError():
            return f"no connection ({error})"
        case httpcore2.RemoteProtocolError():
            return f"the connection ended, or the response is not HTTP ({error})"
        case OSError(strerror=str(text)):  # without a path of this machine, as of a file that a library cannot open
            return text
    return str(error) or "the connection ended"


def _excerpt(response: _Response) -> str:
    """The beginning of the response's text, or the problem; safe to store and to show."""
    received = response.text[: 4 * MAX_EXCERPT].decode("utf-8", "replace")  # a character has at most four bytes
    text = response.problem if response.status is None else received
    return escape_unsafe(hide_keys(text[:MAX_EXCERPT]))[:MAX_EXCERPT]


def _retry_after(text: str, now: float) -> float | None:
    """The seconds that Retry-After asks for (RFC 9110 section 10.2.3); None if it has neither of its forms."""
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return None
