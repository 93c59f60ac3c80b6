"""The gate: every request passes it, and it holds the one order of checks.

    identify → admit → check the form → route → scope → handler → response        (D2)

Nothing else makes a response, so every response under a version of the API, or to what is not a request, has the limit
headers, and every error the Error body (D3, D13). Errors propagate unchanged to here; nothing else on the request path
catches them.
"""

import re
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from petstore_server.domain.errors import (
    DomainError,
    InsufficientScope,
    InvalidApiKey,
    MissingApiKey,
    ServiceUnavailable,
)
from petstore_server.domain.keys import Principal, RefusedKey
from petstore_server.domain.windows import ADMITTED, BANNED, Decision
from petstore_server.http.auth import Authenticator
from petstore_server.http.clients import ClientAddress
from petstore_server.http.documentation import Documents
from petstore_server.http.errors import STATUS, ApiKeyBanned, InternalError, RateLimitExceeded, error_response
from petstore_server.http.headers import limit_headers
from petstore_server.http.page_limit import PageLimit
from petstore_server.http.request import Disconnected, Request
from petstore_server.http.responses import Answer, Response
from petstore_server.http.routes import Match, Routes
from petstore_server.ratelimit.limiter import Limiter

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_KEY_PREFIX = b"pso_"

_NOT_ADMITTED = (401, 429)


class Observer(Protocol):
    """Reports decisions and responses to metrics, logs and the usage history."""

    def decided(self, principal: Principal | None, decision: Decision) -> None:
        """A request was counted: for the account of `principal`, or for its address without a valid key."""

    def responded(self, request: Request, response: Response, seconds: float) -> None:
        """A response is ready, `seconds` after the gate got the request."""

    def refused_key(self, request: Request, key: RefusedKey) -> None:
        """A request within the limit of its address has a known key that is not valid."""

    def refused(self, request: Request, response: Response) -> None:
        """What is not a request, malformed bytes or a connection over the maximum, gets this response."""

    def failed(self, request: Request, error: Exception) -> None:
        """A defect, or an unusable store: the response is 500 or 503."""


class Gate:
    """Answers the requests of the public port. `new_request_id` makes identifiers of visible ASCII characters."""

    def __init__(
        self,
        routes: Routes,
        authenticator: Authenticator,
        limiter: Limiter,
        client_address: ClientAddress,
        documents: Documents,
        page_limit: PageLimit,
        observer: Observer,
        new_request_id: Callable[[], bytes],
    ) -> None:
        self._routes = routes
        self._authenticator = authenticator
        self._limiter = limiter
        self._client_address = client_address
        self._documents = documents
        self._page_limit = page_limit
        self._observer = observer
        self._new_request_id = new_request_id

    async def respond(self, request: Request) -> Answer | None:
        """The response to a request; None if the rest of the request will not arrive."""
        if request.refusal is not None:
            return await self._refuse(request, request.refusal)
        began = perf_counter()
        given = request.headers.get(b"x-request-id")
        request.request_id = given if given and _is_request_id(given) else self._new_request_id()
        match = self._routes.find(request.path)
        request.segments = match.segments
        try:
            response = await (self._serve(request, match) if match.version else self._serve_document(request))
        except Disconnected:
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets a response and the log the cause
            response = self._error_response(request, error)
        more = b""
        if match.version:
            if request.decision is None:  # the key could not be looked up
                request.decision = await self._limiter.peek_address(self._address(request))
            more = limit_headers(request.decision)
            if match.route is not None and match.route.notices and response.status not in _NOT_ADMITTED:
                more += match.route.notices
        self._observer.responded(request, response, perf_counter() - began)
        return response, b"%sx-request-id: %s\r\n" % (more, request.request_id)

    async def _serve(self, request: Request, match: Match) -> Response:
        """The response of an operation. Raises every error that the request can lead to, and Disconnected."""
        principal = await self._admit(request)
        request.check_form()
        if not request.complete:
            await request.receive_body()
        operation = match.operation(request.method)
        request.operation = operation.id
        if operation.scope is not None and operation.scope not in principal.scopes:
            raise InsufficientScope(operation.scope)
        return await operation.handle(request)

    async def _serve_document(self, request: Request) -> Response:
        """The response to a request outside of the API. It needs no key, so it has its own limit (D2)."""
        self._page_limit.admit(self._address(request))
        request.check_form()
        if not request.complete:
            await request.receive_body()
        return self._documents.response(request.segments, request.method, request.headers)

    async def _refuse(self, request: Request, refusal: DomainError) -> Answer:
        """The response where there is no request. It shows the window of the peer's address, and charges nothing."""
        request.request_id = self._new_request_id()
        decision = await self._limiter.peek_address(self._address(request))
        response = error_response(refusal)
        self._observer.refused(request, response)
        return response, b"%sx-request-id: %s\r\n" % (limit_headers(decision), request.request_id)

    async def _admit(self, request: Request) -> Principal:
        """Identify the caller, and charge the windows of the account, or of the address without a valid key.

        Raises RateLimitExceeded, ApiKeyBanned, MissingApiKey, InvalidApiKey, ServiceUnavailable.
        """
        try:
            principal = self._authenticator.known(request.credential) or await self._authenticator.identify(
                request.headers.get(b"authorization")
            )
        except (MissingApiKey, InvalidApiKey) as error:
            request.decision = await self._limiter.admit_address(self._address(request))
            self._observer.decided(None, request.decision)
            if request.decision.outcome is not ADMITTED:
                raise RateLimitExceeded from None
            if isinstance(error, InvalidApiKey) and error.key is not None:
                self._observer.refused_key(request, error.key)
            raise
        request.principal = principal
        request.decision = decision = await self._limiter.admit(principal)
        self._observer.decided(principal, decision)
        if decision.outcome is not ADMITTED:
            raise ApiKeyBanned if decision.outcome is BANNED else RateLimitExceeded
        return principal

    def _error_response(self, request: Request, error: Exception) -> Response:
        if isinstance(error, ServiceUnavailable):
            self._observer.failed(request, error)
        elif not isinstance(error, DomainError) or type(error) not in STATUS:
            self._observer.failed(request, error)
            error = InternalError()
        return error_response(error)

    def _address(self, request: Request) -> str:
        return self._client_address(request.peer, request.headers)


def _is_request_id(given: bytes) -> bool:
    """Whether a client's X-Request-Id is used: it is logged and stored, so it must be short and hold no API key."""
    return _REQUEST_ID.fullmatch(given) is not None and _KEY_PREFIX not in given
