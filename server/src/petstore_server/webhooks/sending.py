"""Sending one signed message to a receiver, and reading its response (D24; Standard Webhooks 1.0.0)."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from time import perf_counter
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2

from petstore_server import __version__
from petstore_server.domain.texts import escape_unsafe, hide_keys
from petstore_server.domain.webhooks import MAX_EXCERPT, Attempt, SigningSecrets, Webhook
from petstore_server.webhooks.addresses import Addresses, AddressRefused

ATTEMPT_SECONDS = 15.0  # for the look-up, the connection, the request and the response together
MAX_RESPONSE = 64 * 1024  # bytes that are read

_MAX_ADDRESSES = 4  # of a name that are tried
_TOO_LATE = f"no response within {ATTEMPT_SECONDS:g} seconds"


class Exchange(NamedTuple):
    """An attempt with what was sent, and `retry_after`, for how many seconds the receiver asks to wait."""

    attempt: Attempt
    headers: Mapping[str, str]
    body: bytes
    retry_after: float | None = None


class Sender:
    """Sends messages, each over a connection of its own. `clock` gives Unix seconds. Close it."""

    def __init__(
        self, secrets: SigningSecrets, addresses: Addresses, proxy: str | None, clock: Callable[[], float]
    ) -> None:
        """A `proxy` looks up the names, and has to check the addresses itself."""
        self.secrets = secrets
        self.addresses = addresses
        self._clock = clock
        trust = ssl.create_default_context()
        limits = httpx2.Limits(max_keepalive_connections=0)
        inner = httpx2.AsyncHTTPTransport(verify=trust, trust_env=False, limits=limits, proxy=proxy)
        # No client around it: that would keep the cookies of receivers, and send them to others.
        self._transport = inner if proxy else _CheckedTransport(inner, addresses)

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
                self.addresses.destination(webhook.url)  # what is allowed may have changed
                await self._exchange(webhook.url, headers, body, response)
        except TimeoutError:
            response.problem = _TOO_LATE
        except AddressRefused as error:
            response.problem = f"not sent: the URL is refused, because {error}"
        except (
            httpx2.HTTPError,
            httpx2.InvalidURL,
            OSError,
            ValueError,
        ) as error:  # TLS: OSError; Punycode: ValueError
            response.problem = f"no response: {_in_words(error)}"
        milliseconds = round((perf_counter() - began) * 1000)
        attempt = Attempt(at, response.status, milliseconds, _excerpt(response))
        return Exchange(attempt, headers, body, _retry_after(response.retry_after, at))

    async def close(self) -> None:
        """End all connections."""
        await self._transport.aclose()

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes, response: "_Response") -> None:
        request = httpx2.Request("POST", url, headers=headers, content=body)
        received = await self._transport.handle_async_request(request)
        try:
            response.status = received.status_code
            response.retry_after = received.headers.get("Retry-After")
            async for chunk in received.aiter_raw():
                response.text += chunk[: MAX_RESPONSE - len(response.text)]
                if len(response.text) >= MAX_RESPONSE:
                    break
        finally:
            await received.aclose()


class _Response:
    """As much of a response as has arrived; `problem` is why there is no more."""

    status: int | None = None
    retry_after: str | None = None
    text = b""
    problem = ""


class _CheckedTransport(httpx2.AsyncBaseTransport):
    """Connects to addresses that were checked, and verifies the certificate for the name in the URL."""

    def __init__(self, inner: httpx2.AsyncHTTPTransport, addresses: Addresses) -> None:
        self._inner = inner
        self._addresses = addresses

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        destination = self._addresses.destination(str(url))
        found = await self._addresses.resolve(destination)
        request.extensions = {**request.extensions, "sni_hostname": destination.host.rstrip(".")}
        for address in found[:_MAX_ADDRESSES]:
            request.url = url.copy_with(host=address)  # the header Host keeps the name
            try:
                return await self._inner.handle_async_request(request)
            except httpx2.ConnectError as error:
                failure = error
        raise failure

    async def aclose(self) -> None:
        await self._inner.aclose()


def _in_words(error: Exception) -> str:
    match error:
        case httpx2.ConnectError():
            return f"no connection ({error})"
        case httpx2.RemoteProtocolError():
            return f"the connection ended, or the response is not HTTP ({error})"
    return str(error) or "the connection ended"


def _excerpt(response: _Response) -> str:
    """The beginning of the response's text, or the problem; safe to store and to show."""
    received = response.text[: 4 * MAX_EXCERPT].decode("utf-8", "replace")  # a character has at most four bytes
    text = response.problem if response.status is None else received
    return escape_unsafe(hide_keys(text[:MAX_EXCERPT]))[:MAX_EXCERPT]


def _retry_after(text: str | None, now: float) -> float | None:
    """The seconds that Retry-After asks for (RFC 9110 section 10.2.3); None if it has neither of its forms."""
    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return None
