"""Reports decisions and responses to metrics, logs and the usage history. None of them ever contains a key."""

import logging
from typing import Any

import structlog

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import Principal
from petstore_server.domain.windows import Decision
from petstore_server.http.request import Request
from petstore_server.telemetry.metrics import Metrics
from petstore_server.telemetry.usage import UsageRecorder

_CANCELLED = 204
_CANCEL_ORDER = ("cancelOrder", "v2.cancelOrder")


class RequestObserver:
    """Reports decisions and responses to metrics, logs and the usage history.

    Only the level debug logs a line for every request, which costs most of what a small response costs. From info on,
    the log has what an operator may have to act on: 5xx responses and bans.
    """

    def __init__(self, metrics: Metrics, activity: UsageRecorder) -> None:
        self._metrics = metrics
        self._activity = activity
        self._log = structlog.get_logger()
        self._verbose = self._log.bind().is_enabled_for(logging.DEBUG)

    def decided(self, principal: Principal | None, decision: Decision) -> None:
        self._metrics.decided("none" if principal is None else principal.plan, decision)
        self._activity.decided(principal, decision)

    def responded(self, request: Request, status: int, seconds: float) -> None:
        self._metrics.responded(request.operation, status, seconds)
        if status == _CANCELLED and request.operation in _CANCEL_ORDER and request.principal is not None:
            self._activity.cancelled(request.principal)
        if self._verbose:
            self._log.debug(
                "request answered",
                method=request.method,
                status=status,
                milliseconds=round(seconds * 1000, 3),
                **_context(request),
            )

    def failed(self, request: Request, error: Exception) -> None:
        if isinstance(error, ServiceUnavailable):
            self._log.warning("store unavailable", reason=error.reason, **_context(request))
        else:
            self._log.error("request failed", exc_info=error, **_context(request))


def _context(request: Request) -> dict[str, Any]:
    principal = request.principal
    return {
        "request_id": request.request_id.decode(),
        "operation": request.operation,
        "account": principal.account if principal else None,
        "key": principal.key_id if principal else None,
    }
