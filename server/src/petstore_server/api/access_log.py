"""The access log: a line for each response of the public port, if the settings ask for it. No line holds a key.

A line has neither headers nor the query, in which a client may have put a key by mistake; a key in the path is hidden.
"""

import logging
import os
import re
from collections.abc import Callable
from functools import lru_cache

from petstore_server.api.callers import ClientAddress
from petstore_server.api.routes import Call
from petstore_server.domain.texts import hide_keys, looks_like_key, percent_decoded
from petstore_server.server.messages import Response
from petstore_server.telemetry.logs import timestamp, write_record

EVENT = "request answered"

_NEVER = 600  # above all statuses
_MAX_PATH = 512  # bytes
_BLANKS_AND_QUOTES = re.compile(r'[\s"]+')  # between words of a sentence, but in a path they may split a key
_ESCAPES = {code: f"\\x{code:02x}" for code in range(256) if not 0x20 < code < 0x7F or code == ord("\\")}


class AccessLog:
    """Writes a line for each response, or each error: at `info`, or at `debug` where only that level asks for it.

    `is_on` is False if no response can make a line: without an access log, and above the level `debug`.
    """

    def __init__(self, which: str, client_address: ClientAddress, clock: Callable[[], float]) -> None:
        """`which` is `all`, `errors` (responses of 400 and above), or `off`. `clock` gives Unix seconds."""
        log = logging.getLogger(__name__)
        self._info_from = {"all": 0, "errors": 400}.get(which, _NEVER) if log.isEnabledFor(logging.INFO) else _NEVER
        self._debug = log.isEnabledFor(logging.DEBUG)
        self.is_on = self._debug or self._info_from < _NEVER
        self._client_address = client_address
        self._clock = clock
        self._pid = os.getpid()

    def responded(self, call: Call, response: Response, seconds: float | None) -> None:
        """A response is ready, `seconds` after the gate got the request; None if that was refused unread.

        Fields of a missing request are None.
        """
        at_info = response.status >= self._info_from
        if not (at_info or self._debug):
            return
        request = call.request
        write_record(
            {
                "method": request.method or None,
                "path": shown_path(request.path) or None,
                "status": response.status,
                "code": call.code,
                "bytes": 0 if request.method == "HEAD" else response.length,
                "duration_seconds": None if seconds is None else round(seconds, 6),
                **call.context(),
                "address": self._client_address(request.peer, request.headers),
                "event": EVENT,
                "level": "info" if at_info else "debug",
                "timestamp": timestamp(self._clock()),
                "pid": self._pid,
            }
        )


def shown_path(path: bytes) -> str:
    """The path of a request as logs and traces show it: the beginning of a long one, without an API key."""
    return _shown(path[: _MAX_PATH + 1])


@lru_cache(maxsize=1024)
def _shown(path: bytes) -> str:
    """The path as sent, in visible ASCII: other bytes and backslashes as \\xNN. An API key in it is hidden.

    Such a path is shown decoded. Only the first bytes are shown; `path` has at most one more.
    """
    text = path[:_MAX_PATH].decode("latin-1")
    joined = _BLANKS_AND_QUOTES.sub("", percent_decoded(text))
    if looks_like_key(joined):
        text = hide_keys(joined)
    return text.translate(_ESCAPES) + ("…" if len(path) > _MAX_PATH else "")
