"""The gate: every request passes it, and it holds the one order of checks.

    identify → admit → check the form → route → scope → concurrency → handler → response        (D2)

Nothing else makes a response, so every response under a version of the API, or to what is not a request, has the limit
headers, and every error the Error body (D3, D13). Errors propagate unchanged to here.

A line for every request costs most of what a small response costs, so only the access log and the level debug have one.
Otherwise the log has what an operator may have to act on: 5xx responses and refused keys. No line has a key.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from petstore_server.api import errors
from petstore_server.api.access_log import AccessLog
from petstore_server.api.callers import Authenticator, ClientAddress
from petstore_server.api.documentation import Documents
from petstore_server.api.headers import limit_headers
from petstore_server.api.representation import body_response
from petstore_server.api.routes import ANY_KEY, Call, Held, Match, Routes
from petstore_server.domain import errors as domain
from petstore_server.domain.keys import Principal
from petstore_server.domain.texts import looks_like_key
from petstore_server.domain.windows import ADMITTED, BANNED
from petstore_server.limits.fallback import Limiter
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.limits.usage_recorder import UsageRecorder
from petstore_server.server.messages import Answer, Disconnected, Request, RequestError, Response
from petstore_server.telemetry.metrics import NOT_ADMITTED, Metrics

MAX_CONCURRENT = 1024  # of all accounts together that are answered at the same time
MAX_CONCURRENT_PER_ACCOUNT = 256

HEALTH = b"/healthz"
"""The path at which load balancers ask whether the process accepts requests."""

_ACCEPTING = body_response((b"ok\n",), "text/plain", b"Cache-Control: no-store\r\n")

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")

_log = logging.getLogger(__name__)


class Concurrency:
    """Counts the requests that operations are answering, so that no more are answered at the same time than allowed.

    Beyond it a request gets 503 at once: waiting in a longer queue would only make every response late. An account gets
    at most as many as are left for others, so several greedy accounts leave room for one more.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._total = 0
        self._of_account: defaultdict[int, int] = defaultdict(int)  # zeros stay: the store bounds the accounts

    def enter(self, account_id: int) -> None:
        """Count a request, until `leave`. Raises Overloaded."""
        used = self._of_account[account_id]
        if used >= MAX_CONCURRENT_PER_ACCOUNT or used >= MAX_CONCURRENT - self._total:
            self.refused += 1
            raise errors.Overloaded
        self._of_account[account_id] = used + 1
        self._total += 1

    def leave(self, account_id: int) -> None:
        """A request that was counted has its response."""
        self._total -= 1
        self._of_account[account_id] -= 1


@dataclass(slots=True, eq=False, kw_only=True)
class Gate:
    """Answers the requests of the public port, and records them. `access_log` is None if it is off.

    `new_request_id` makes identifiers of visible ASCII characters.
    """

    routes: Routes
    authenticator: Authenticator
    limiter: Limiter
    client_address: ClientAddress
    documents: Documents
    document_limiter: MemoryLimiter
    concurrency: Concurrency
    metrics: Metrics
    usage: UsageRecorder
    access_log: AccessLog | None
    new_request_id: Callable[[], bytes]
    draining: bool = False
    """Whether the process is about to stop."""

    async def respond(self, request: Request) -> Answer | None:
        """The response to a request; None if the rest of the request will not arrive."""
        if request.refusal is not None:
            return await self._refuse(request, request.refusal)
        began = perf_counter()
        sent = request.headers.get(b"x-request-id")
        request_id = sent if sent and _may_be_kept(sent) else self.new_request_id()
        match = self.routes.find(request.path)
        if not match.version and request.path == HEALTH:
            return self._health(request), b"X-Request-Id: %s\r\n" % request_id
        call = Call(request, request_id, match.parameter)
        try:
            response = await (self._serve(call, match) if match.version else self._serve_document(request, match))
            response = await self._hold(call, response) if isinstance(response, Held) else response
        except Disconnected:
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets a response and the log the cause
            response = self._error_response(call, error)
        more = b""
        if match.version:
            # Without a decision, the key could not be looked up.
            more = limit_headers(
                call.decision or await self.limiter.admit_address(self._address(request), charge=False)
            )
            if match.route is not None and match.route.notices and response.status not in NOT_ADMITTED:
                more += match.route.notices
        seconds = perf_counter() - began - call.held
        self.metrics.responded(call.operation, response.status, seconds)
        self.usage.responded(call.principal, call.operation, response.status, call.cancelled)
        if self.access_log is not None:
            self.access_log.responded(call, response, seconds)
        return response, b"%sX-Request-Id: %s\r\n" % (more, request_id)

    async def _serve(self, call: Call, match: Match) -> Response | Held:
        """The response of an operation. Raises every error that the request can lead to, and Disconnected."""
        request = call.request
        authorization = request.headers.get(b"authorization")
        call.principal = call.caller = principal = self.authenticator.known(authorization) or await self._identify(call)
        operation = None if match.route is None else match.route.operations.get(request.method)
        if operation is not None:
            call.operation = operation.id
        call.decision = decision = self.limiter.decide(principal) or await self.limiter.admit(principal)
        self.metrics.decided(principal.plan, decision)
        self.usage.decided(principal, call.operation, decision)
        if decision.outcome is not ADMITTED:
            raise errors.ApiKeyBanned if decision.outcome is BANNED else errors.RateLimitExceeded
        if request.fault is not None:
            raise request.fault
        if not request.complete:
            await request.receive_body()
        if operation is None:
            if match.route is None:
                raise errors.RouteNotFound(match.version)
            raise errors.MethodNotAllowed(", ".join(match.route.operations))
        if operation.scope != ANY_KEY and operation.scope not in principal.scopes:
            raise domain.InsufficientScope(operation.scope)
        self.concurrency.enter(principal.account_id)
        try:
            return await operation.handle(call)
        finally:
            self.concurrency.leave(principal.account_id)

    async def _hold(self, call: Call, held: Held) -> Response:
        """The response that is waited for. Its key and its limits are looked at again, and nothing is charged.

        Raises InvalidApiKey if the key is not valid any more, ApiKeyBanned, ChangesReset if it shows orders and its
        account sees other ones now, and what the response raises.
        """
        began, call.decision = perf_counter(), None
        try:
            return await held.response
        finally:
            call.held = perf_counter() - began
            principal = await self.authenticator.identify(call.request.headers.get(b"authorization"))
            call.decision = await self.limiter.admit(principal, charge=False)
            if call.decision.outcome is BANNED:
                raise errors.ApiKeyBanned
            if held.shows_orders and principal.owner != call.caller.owner:
                raise domain.ChangesReset

    async def _identify(self, call: Call) -> Principal:
        """Look the key up. Without a valid one, charge the window of the address.

        Raises RateLimitExceeded, MissingApiKey, InvalidApiKey, ServiceUnavailable.
        """
        try:
            return await self.authenticator.identify(call.request.headers.get(b"authorization"))
        except (domain.MissingApiKey, domain.InvalidApiKey) as error:
            call.decision = decision = await self.limiter.admit_address(self._address(call.request))
            self.metrics.decided("none", decision)
            self.usage.decided(None, call.operation, decision)
            if decision.outcome is not ADMITTED:
                raise errors.RateLimitExceeded from None
            if isinstance(error, domain.InvalidApiKey) and error.known:
                _log.warning("key refused", extra={**call.context(), **error.known})
            raise

    async def _serve_document(self, request: Request, match: Match) -> Response:
        """The response to a request outside of the API. It needs no key, so it has its own limit (D2)."""
        decision = await self.document_limiter.admit_address(self._address(request))
        if decision.outcome is not ADMITTED:
            raise errors.RateLimitExceeded(decision.retry_after)
        if request.fault is not None:
            raise request.fault
        if not request.complete:
            await request.receive_body()
        return self.documents.response(match.segments, request.method, request.headers, request.query)

    def _health(self, request: Request) -> Response:
        """Whether the process accepts requests. It needs no key; nothing is counted or recorded."""
        if request.fault is not None:
            return errors.error_response(request.fault)
        if request.method not in ("GET", "HEAD"):
            return errors.error_response(errors.MethodNotAllowed("GET, HEAD"))
        return errors.error_response(domain.ServiceUnavailable("draining")) if self.draining else _ACCEPTING

    async def _refuse(self, request: Request, refusal: RequestError) -> Answer:
        """The response where there is no request. It shows the window of the peer's address, and charges nothing."""
        call = Call(request, self.new_request_id())
        call.code = refusal.code
        decision = await self.limiter.admit_address(self._address(request), charge=False)
        response = errors.error_response(refusal)
        if self.access_log is not None:
            self.access_log.responded(call, response, None)
        return response, b"%sX-Request-Id: %s\r\n" % (limit_headers(decision), call.request_id)

    def _error_response(self, call: Call, error: Exception) -> Response:
        """The response to an error; a defect, or an unusable store, is logged."""
        if isinstance(error, domain.ServiceUnavailable):
            _log.warning("store unavailable", extra={"reason": error.reason, **call.context()})
        elif not isinstance(error, domain.DomainError | RequestError) or type(error) not in errors.STATUS:
            _log.error("request failed", extra=call.context(), exc_info=error)
            error = errors.InternalError()
        call.code = error.code
        return errors.error_response(error, of_order=bool(call.parameter))

    def _address(self, request: Request) -> str:
        return self.client_address(request.peer, request.headers)


def _may_be_kept(request_id: bytes) -> bool:
    """Whether a client's X-Request-Id is used: it is logged and stored, so it is short and holds no API key."""
    return _REQUEST_ID.fullmatch(request_id) is not None and not looks_like_key(request_id.decode("ascii"))
