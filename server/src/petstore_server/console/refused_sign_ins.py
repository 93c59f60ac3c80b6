"""Lines of the log about sign-ins that were refused: a few each second, so that no program can fill the disk."""

import asyncio
import logging

from starlette.requests import Request

_log = logging.getLogger(__name__)

_LINES_PER_SECOND = 5


class RefusedSignIns:
    """Logs refusals on an event loop: the first ones of a second as they come, and at its end how many were omitted."""

    def __init__(self) -> None:
        self._second: asyncio.TimerHandle | None = None
        self._lines = 0
        self._omitted = 0

    def log(self, request: Request, reason: str, operator: str = "") -> None:
        """Log that a sign-in was refused. `operator` is a name from a trusted proxy."""
        if self._second is None:
            self._second = asyncio.get_running_loop().call_later(1, self.end_second)
        if self._lines == _LINES_PER_SECOND:
            self._omitted += 1
            return
        self._lines += 1
        fields = {"peer": peer_of(request), "reason": reason}
        if operator:
            fields["operator"] = operator
        _log.warning("sign-in refused", extra=fields)

    def end_second(self) -> None:
        """Log how many refusals of this second were omitted, if any were; also before a stop."""
        if self._second is not None:
            self._second.cancel()
        if self._omitted:
            _log.warning("sign-in refused", extra={"omitted": self._omitted})
        self._second, self._lines, self._omitted = None, 0, 0


def peer_of(request: Request) -> str:
    """The address from which the connection comes, in words if it has none."""
    return request.client.host if request.client else "a socket without an address"
