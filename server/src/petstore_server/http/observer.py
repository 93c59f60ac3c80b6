"""Reports decisions and responses to metrics, logs and the usage history. None of them ever contains a key."""

import logging
from typing import Any

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import Principal, RefusedKey
from petstore_server.domain.windows import Decision
from petstore_server.http.access_log import AccessLog
from petstore_server.http.clients import ClientAddress
from petstore_server.http.request import Request
from petstore_server.http.responses import Response
from petstore_server.telemetry.metrics import Metrics
from petstore_server.telemetry.refusals import REFUSED_STATUSES, RefusedAddresses
from petstore_server.telemetry.usage import UsageRecorder

_CANCELLED = 204
_CANCEL_ORDER = ("cancelOrder", "v2.cancelOrder")
_FIRST_ERROR = 400

_log = logging.getLogger(__name__)


class RequestObserver:
    """Reports decisions and responses to metrics, logs and the usage history.

    A line for every request costs most of what a small response costs, so only the access log and the level debug have
    one. Otherwise the log has what an operator may have to act on: 5xx responses and bans.
    """

    def __init__(
        self,
        metrics: Metrics,
        activity: UsageRecorder,
        refusals: RefusedAddresses,
        access_log: AccessLog,
        client_address: ClientAddress,
    ) -> None:
        self._metrics = metrics
        self._activity = activity
        self._refusals = refusals
        self._access_log = access_log if access_log.is_on else None
        self._client_address = client_address

    def decided(self, principal: Principal | None, decision: Decision) -> None:
        self._metrics.decided("none" if principal is None else principal.plan, decision)
        self._activity.decided(principal, decision)

    def responded(self, request: Request, response: Response, seconds: float) -> None:
        status = response.status
        self._metrics.responded(request.operation, status, seconds)
        if status >= _FIRST_ERROR:
            if status in REFUSED_STATUSES:
                self._refusals.count(self._client_address(request.peer, request.headers), status)
        elif status == _CANCELLED and request.operation in _CANCEL_ORDER and request.principal is not None:
            self._activity.cancelled(request.principal)
        if self._access_log is not None:
            self._access_log.responded(request, response, seconds)

    def refused_key(self, request: Request, key: RefusedKey) -> None:
        fields = {"key": key.key_id, "account": key.account, "state": key.state}
        _log.warning("key refused", extra={**_context(request), **fields})

    def refused(self, request: Request, response: Response) -> None:
        self._refusals.count(self._client_address(request.peer, request.headers), response.status)
        if self._access_log is not None:
            self._access_log.responded(request, response, None)

    def failed(self, request: Request, error: Exception) -> None:
        if isinstance(error, ServiceUnavailable):
            _log.warning("store unavailable", extra={"reason": error.reason, **_context(request)})
        else:
            _log.error("request failed", extra=_context(request), exc_info=error)


def _context(request: Request) -> dict[str, Any]:
    principal = request.principal
    return {
        "request_id": request.request_id.decode(),
        "operation": request.operation,
        "account": principal.account if principal else None,
        "key": principal.key_id if principal else None,
    }
