"""The gate: the one middleware, which tells a request's whole story.

    identify → admit → check the form → route → scope → handler → answer        (D2)

It is a plain ASGI application, so nothing answers past it: every request that the HTTP parser accepts gets the limit
headers, and every refusal the Error body (D3, D13). Errors climb untouched to here; no other `except` is on the way.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any, Protocol

from petstore_server.domain.errors import (
    DomainError,
    InsufficientScope,
    InvalidApiKey,
    MissingApiKey,
    ServiceUnavailable,
)
from petstore_server.domain.windows import Decision, Outcome
from petstore_server.http.auth import Authenticator
from petstore_server.http.clients import ClientAddress
from petstore_server.http.documentation import Documents
from petstore_server.http.errors import (
    STATUS,
    ApiKeyBanned,
    InternalError,
    PayloadTooLarge,
    RateLimitExceeded,
    error_response,
)
from petstore_server.http.headers import limit_headers
from petstore_server.http.request import Disconnected, Receive, Request, Scope
from petstore_server.http.responses import Response
from petstore_server.http.routes import Route, Routes, found
from petstore_server.ports import Limiter

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")

_NOT_ADMITTED = (401, 429)
_NO_BODY = (204, 304)


class Observer(Protocol):
    """Who is told of every answer, for metrics and logs."""

    def responded(self, request: Request, status: int, seconds: float) -> None:
        """An answer was sent; `seconds` since the request's headers had come."""

    def failed(self, request: Request, error: Exception) -> None:
        """A fault of ours or of the store's: the request is answered 500 or 503."""


class Gate:
    """The ASGI application of the public port."""

    def __init__(
        self,
        routes: Routes,
        authenticator: Authenticator,
        limiter: Limiter,
        client_address: ClientAddress,
        documents: Documents,
        observer: Observer,
        new_request_id: Callable[[], str],
    ) -> None:
        self._routes = routes
        self._authenticator = authenticator
        self._limiter = limiter
        self._client_address = client_address
        self._documents = documents
        self._observer = observer
        self._new_request_id = new_request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        began = perf_counter()
        request = Request(scope, receive)
        given = request.headers.get(b"x-request-id")
        request.request_id = given.decode() if given and _REQUEST_ID.fullmatch(given) else self._new_request_id()
        try:
            response = await (self._serve(request) if request.segments[:1] == ["v1"] else self._serve_document(request))
        except Disconnected:
            return
        await _send(request, response, send)
        self._observer.responded(request, response.status, perf_counter() - began)

    async def _serve(self, request: Request) -> Response:
        route = self._routes.find(request.segments)
        try:
            await self._admit(request)
            await request.check_form()
            response = await self._handle(request, route)
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer and the log the cause
            response = self._refuse(request, error)
        if request.decision is None:  # nobody could tell whose request it is
            request.decision = await self._limiter.peek_address(self._address(request))
        if route is not None and response.status not in _NOT_ADMITTED:
            response.headers.extend(route.notices)
        response.headers.extend(limit_headers(request.decision))
        return response

    async def _serve_document(self, request: Request) -> Response:
        try:
            await request.check_form()
            return self._documents.response(request.segments, request.method, request.headers)
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return self._refuse(request, error)

    async def _admit(self, request: Request) -> None:
        """Tell who asks, and charge the windows of the account, or of the address of a caller without a valid key."""
        try:
            request.principal = await self._authenticator.identify(request.headers.get(b"authorization"))
        except (MissingApiKey, InvalidApiKey):
            request.decision = await self._limiter.admit_address(self._address(request))
            _refuse_unless_admitted(request.decision)
            raise
        request.decision = await self._limiter.admit(request.principal)
        _refuse_unless_admitted(request.decision)

    async def _handle(self, request: Request, route: Route | None) -> Response:
        operation = found(route).operation(request.method)
        request.operation = operation.id
        if request.principal is None or operation.scope not in request.principal.scopes:
            raise InsufficientScope(operation.scope)
        return await operation.handle(request)

    def _refuse(self, request: Request, error: Exception) -> Response:
        if isinstance(error, ServiceUnavailable):
            self._observer.failed(request, error)
        elif not isinstance(error, DomainError) or type(error) not in STATUS:
            self._observer.failed(request, error)
            error = InternalError()
        response = error_response(error)
        if isinstance(error, PayloadTooLarge) and b"expect" in request.headers:
            response.headers.append((b"connection", b"close"))  # the client still holds the body back
        return response

    def _address(self, request: Request) -> str:
        return self._client_address(request.peer, request.headers)


def _refuse_unless_admitted(decision: Decision) -> None:
    if decision.outcome is Outcome.LIMITED:
        raise RateLimitExceeded
    if decision.outcome is Outcome.BANNED:
        raise ApiKeyBanned


async def _send(request: Request, response: Response, send: Send) -> None:
    headers = response.headers
    headers.append((b"x-request-id", request.request_id.encode()))
    if response.status not in _NO_BODY:
        headers.append((b"content-length", b"%d" % response.length))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    chunks = () if request.method == "HEAD" else response.chunks
    for chunk in chunks[:-1]:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": chunks[-1] if chunks else b""})
