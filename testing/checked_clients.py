"""HTTP clients for tests that hold each exchange to the contract, without the test having to ask."""

from functools import cache
from typing import Any

import httpx2

from testing.contract import Contract


def checked_client(server: str | httpx2.BaseTransport, **options: Any) -> httpx2.Client:
    """A client of the server at a base address, or behind a transport, that checks every exchange.

    It reads each body whole, so it is not for tests of slow readers or of cut bodies.
    """
    contract()  # compiled before the first request, which may have a deadline
    given = (
        {"base_url": server} if isinstance(server, str) else {"base_url": "http://petstore.test", "transport": server}
    )
    return httpx2.Client(event_hooks={"response": [_check]}, **{**given, **options})


def checked_async_client(inner: httpx2.AsyncBaseTransport, **options: Any) -> httpx2.AsyncClient:
    """A client that sends through another transport and checks every exchange."""
    return httpx2.AsyncClient(transport=CheckedAsyncTransport(inner), **{"base_url": "http://petstore.test", **options})


@cache
def contract() -> Contract:
    """The one compiled contract of a test run."""
    return Contract()


def _check(response: httpx2.Response) -> None:
    response.read()
    contract().check(
        response.request.method,
        response.request.url.raw_path.decode("ascii"),
        response.status_code,
        response.headers.multi_items(),
        response.content,
    )


class CheckedAsyncTransport(httpx2.AsyncBaseTransport):
    """Sends through another transport and checks what comes back."""

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

        def again() -> httpx2.Response:
            """The response with its body at hand, still encoded."""
            return httpx2.Response(
                response.status_code,
                headers=response.headers,
                stream=httpx2.ByteStream(body),
                extensions=response.extensions,
                request=request,
            )

        _check(again())
        return again()

    async def aclose(self) -> None:
        await self._inner.aclose()
