"""HTTP clients for tests that hold each exchange to the contract, without the test having to ask."""

from functools import cache
from typing import Any

import httpx2

from testing.contract import Contract


def checked_client(server: str | httpx2.BaseTransport, **options: Any) -> httpx2.Client:
    """A client of the server at a base address, or behind a transport, that checks every exchange.

    It reads each body whole, so it is not for tests of slow readers or of cut bodies.
    """
    if isinstance(server, str):
        return httpx2.Client(transport=CheckedTransport(httpx2.HTTPTransport()), base_url=server, **options)
    return httpx2.Client(transport=CheckedTransport(server), **{"base_url": "http://petstore.test", **options})


def checked_async_client(inner: httpx2.AsyncBaseTransport, **options: Any) -> httpx2.AsyncClient:
    """A client that sends through another transport and checks every exchange."""
    return httpx2.AsyncClient(transport=CheckedAsyncTransport(inner), **{"base_url": "http://petstore.test", **options})


@cache
def contract() -> Contract:
    """The one compiled contract of a test run."""
    return Contract()


class CheckedTransport(httpx2.BaseTransport):
    """Sends through another transport and checks what comes back."""

    def __init__(self, inner: httpx2.BaseTransport) -> None:
        contract()  # compiled before the first request, which may have a deadline
        self._inner = inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._inner.handle_request(request)
        try:
            assert isinstance(response.stream, httpx2.SyncByteStream)
            body = b"".join(response.stream)
        finally:
            response.close()
        return _checked(request, response, body)

    def close(self) -> None:
        self._inner.close()


class CheckedAsyncTransport(httpx2.AsyncBaseTransport):
    """The same, awaited."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        contract()
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        try:
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            body = b"".join([part async for part in response.stream])
        finally:
            await response.aclose()
        return _checked(request, response, body)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _checked(request: httpx2.Request, response: httpx2.Response, body: bytes) -> httpx2.Response:
    """The response with its body at hand, once the exchange has passed."""

    def again() -> httpx2.Response:
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=httpx2.ByteStream(body),
            extensions=response.extensions,
            request=request,
        )

    contract().check(
        request.method,
        request.url.raw_path.decode("ascii"),
        response.status_code,
        response.headers.multi_items(),
        again().read() if "content-encoding" in response.headers else body,
    )
    return again()
