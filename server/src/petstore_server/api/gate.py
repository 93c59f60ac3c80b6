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

from petstore_server.api.auth import Authenticator, credential
from petstore_server.api.call import Call
from petstore_server.api.clients import ClientAddress
from petstore_server.api.documentation import Documents
from petstore_server.api.errors import STATUS, ApiKeyBanned, InternalError, RateLimitExceeded, error_response
from petstore_server.api.headers import limit_headers
from petstore_server.api.page_limit import PageLimit
from petstore_server.api.routes import Match, Routes
from petstore_server.domain.errors import (
    DomainError,
    InsufficientScope,
    InvalidApiKey,
    MissingApiKey,
    ServiceUnavailable,
)
from petstore_server.domain.keys import Principal, RefusedKey
from petstore_server.domain.windows import ADMITTED, BANNED, Decision
from petstore_server.limits.limiter import Limiter
from petstore_server.server.errors import RequestError
from petstore_server.server.request import Disconnected, Request
from petstore_server.server.response import Answer, Response

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_KEY_PREFIX = b"pso_"

_NOT_ADMITTED = (401, 429)


class Observer(Protocol):
    """Reports decisions and responses to metrics, logs and the usage history."""

    def decided(self, principal: Principal | None, decision: Decision) -> None:
        """A request was counted: for the account of `principal`, or for its address without a valid key."""

    def responded(self, call: Call, response: Response, seconds: float) -> None:
        """A response is ready, `seconds` after the gate got the request."""

    def refused_key(self, call: Call, key: RefusedKey) -> None:
        """A request within the limit of its address has a known key that is not valid."""

    def refused(self, call: Call, response: Response) -> None:
        """What is not a request, malformed bytes or a connection over the maximum, gets this response."""

    def failed(self, call: Call, error: Exception) -> None:
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
        request_id = given if given and _is_request_id(given) else self._new_request_id()
        match = self._routes.find(request.path)
        call = Call(request, request_id, match.segments)
        try:
            response = await (self._serve(call, match) if match.version else self._serve_document(call))
        except Disconnected:
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets a response and the log the cause
            response = self._error_response(call, error)
        more = b""
        if match.version:
            if call.decision is None:  # the key could not be looked up
                call.decision = await self._limiter.peek_address(self._address(request))
            more = limit_headers(call.decision)
            if match.route is not None and match.route.notices and response.status not in _NOT_ADMITTED:
                more += match.route.notices
        self._observer.responded(call, response, perf_counter() - began)
        return response, b"%sx-request-id: %s\r\n" % (more, request_id)

    async def _serve(self, call: Call, match: Match) -> Response:
        """The response of an operation. Raises every error that the request can lead to, and Disconnected."""
        request = call.request
        principal, decision = await self._admit(call)
        request.check_form()
        if not request.complete:
            await request.receive_body()
        operation = match.operation(request.method)
        call.operation = operation.id
        if operation.scope is not None and operation.scope not in principal.scopes:
            raise InsufficientScope(operation.scope)
        return await operation.handle(call, principal, decision)

    async def _serve_document(self, call: Call) -> Response:
        """The response to a request outside of the API. It needs no key, so it has its own limit (D2)."""
        request = call.request
        self._page_limit.admit(self._address(request))
        request.check_form()
        if not request.complete:
            await request.receive_body()
        return self._documents.response(call.segments, request.method, request.headers)

    async def _refuse(self, request: Request, refusal: RequestError) -> Answer:
        """The response where there is no request. It shows the window of the peer's address, and charges nothing."""
        call = Call(request, self._new_request_id(), [])
        decision = await self._limiter.peek_address(self._address(request))
        response = error_response(refusal)
        self._observer.refused(call, response)
        return response, b"%sx-request-id: %s\r\n" % (limit_headers(decision), call.request_id)

    async def _admit(self, call: Call) -> tuple[Principal, Decision]:
        """Identify the caller, and charge the windows of the account, or of the address without a valid key.

        Raises RateLimitExceeded, ApiKeyBanned, MissingApiKey, InvalidApiKey, ServiceUnavailable.
        """
        authorization = call.request.headers.get(b"authorization")
        try:
            principal = self._authenticator.known(credential(authorization)) or await self._authenticator.identify(
                authorization
            )
        except (MissingApiKey, InvalidApiKey) as error:
            call.decision = decision = await self._limiter.admit_address(self._address(call.request))
            self._observer.decided(None, decision)
            if decision.outcome is not ADMITTED:
                raise RateLimitExceeded from None
            if isinstance(error, InvalidApiKey) and error.key is not None:
                self._observer.refused_key(call, error.key)
            raise
        call.principal = principal
        call.decision = decision = await self._limiter.admit(principal)
        self._observer.decided(principal, decision)
        if decision.outcome is not ADMITTED:
            raise ApiKeyBanned if decision.outcome is BANNED else RateLimitExceeded
        return principal, decision

    def _error_response(self, call: Call, error: Exception) -> Response:
        if isinstance(error, ServiceUnavailable):
            self._observer.failed(call, error)
        elif not isinstance(error, DomainError | RequestError) or type(error) not in STATUS:
            self._observer.failed(call, error)
            error = InternalError()
        return error_response(error)

    def _address(self, request: Request) -> str:
        return self._client_address(request.peer, request.headers)


def _is_request_id(given: bytes) -> bool:
    """Whether a client's X-Request-Id is used: it is logged and stored, so it must be short and hold no API key."""
    return _REQUEST_ID.fullmatch(given) is not None and _KEY_PREFIX not in given
