"""Lines of the log about sign-ins that were refused: a few each second, so that no program can fill the disk."""

import logging
import math

from starlette.requests import Request

_log = logging.getLogger(__name__)

_LINES_PER_SECOND = 5


class RefusedSignIns:
    def __init__(self) -> None:
        self._began_at = -math.inf  # the second of the lines
        self._lines = 0
        self._omitted = 0

    def log(self, request: Request, reason: str, now: float, operator: str = "") -> None:
        """Log that a sign-in was refused at `now` (Unix seconds). `operator` is a name from a trusted proxy."""
        if not self._began_at <= now < self._began_at + 1:
            self._began_at, self._lines = now, 0
        if self._lines == _LINES_PER_SECOND:
            self._omitted += 1
            return
        fields: dict[str, str | int] = {"peer": peer_of(request), "reason": reason}
        if operator:
            fields["operator"] = operator
        if self._omitted:
            fields["omitted"] = self._omitted
        self._lines += 1
        self._omitted = 0
        _log.warning("sign-in refused", extra=fields)


def peer_of(request: Request) -> str:
    """The address from which the connection comes, in words if it has none."""
    return request.client.host if request.client else "a socket without an address"
