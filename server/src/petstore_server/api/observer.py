"""Reports decisions and responses to metrics, logs and the usage history. None of them ever contains a key."""

import logging
from typing import Any

from petstore_server.api.access_log import AccessLog
from petstore_server.api.call import Call
from petstore_server.api.clients import ClientAddress
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import Principal, RefusedKey
from petstore_server.domain.windows import Decision
from petstore_server.server.response import Response
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

    def responded(self, call: Call, response: Response, seconds: float) -> None:
        status = response.status
        self._metrics.responded(call.operation, status, seconds)
        if status >= _FIRST_ERROR:
            if status in REFUSED_STATUSES:
                self._refusals.count(self._client_address(call.request.peer, call.request.headers), status)
        elif status == _CANCELLED and call.operation in _CANCEL_ORDER and call.principal is not None:
            self._activity.cancelled(call.principal)
        if self._access_log is not None:
            self._access_log.responded(call, response, seconds)

    def refused_key(self, call: Call, key: RefusedKey) -> None:
        fields = {"key": key.key_id, "account": key.account, "state": key.state}
        _log.warning("key refused", extra={**_context(call), **fields})

    def refused(self, call: Call, response: Response) -> None:
        self._refusals.count(self._client_address(call.request.peer, call.request.headers), response.status)
        if self._access_log is not None:
            self._access_log.responded(call, response, None)

    def failed(self, call: Call, error: Exception) -> None:
        if isinstance(error, ServiceUnavailable):
            _log.warning("store unavailable", extra={"reason": error.reason, **_context(call)})
        else:
            _log.error("request failed", extra=_context(call), exc_info=error)


def _context(call: Call) -> dict[str, Any]:
    principal = call.principal
    return {
        "request_id": call.request_id.decode(),
        "operation": call.operation,
        "account": principal.account if principal else None,
        "key": principal.key_id if principal else None,
    }
