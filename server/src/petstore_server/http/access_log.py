"""The access log: a line for each response of the public port, if the settings ask for it. No line holds a key.

A line has neither headers nor the query, in which a client may have put a key by mistake; a key in the path is hidden.
"""

import logging
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec
import structlog

from petstore_server.domain.keys import hide_keys, looks_like_key
from petstore_server.http.clients import ClientAddress
from petstore_server.http.request import Request
from petstore_server.http.responses import Response

EVENT = "request answered"

_FIRST_ERROR = 400
_LONGEST_PATH = 512  # bytes
_ESCAPES = {code: f"\\x{code:02x}" for code in range(256) if not 0x20 < code < 0x7F or code == ord("\\")}


class AccessLog:
    """Writes a line for each response, or each error: at `info`, or at `debug` where only that level asks for it."""

    def __init__(self, which: str, client_address: ClientAddress) -> None:
        """`which` is `all`, `errors` (responses of 400 and above), or `off`."""
        self._info_from = {"all": 0, "errors": _FIRST_ERROR}.get(which)
        self._client_address = client_address
        self._log = structlog.get_logger()

    @property
    def is_on(self) -> bool:
        """Whether a response can make a line: without an access log, and above the level `debug`, none can."""
        bound = self._log.bind()
        return bound.is_enabled_for(logging.DEBUG) or (
            self._info_from is not None and bound.is_enabled_for(logging.INFO)
        )

    def responded(self, request: Request, response: Response, seconds: float) -> None:
        """A response to a request is ready, `seconds` after the gate got the request."""
        principal = request.principal
        self._log.log(
            self._level(response.status),
            EVENT,
            method=request.method,
            path=_shown(request.path),
            status=response.status,
            code=_error_code(response),
            bytes=0 if request.method == "HEAD" else response.length,
            milliseconds=round(seconds * 1000, 3),
            request_id=request.request_id.decode("ascii"),
            operation=request.operation,
            account=principal.account if principal else None,
            key=principal.key_id if principal else None,
            address=self._client_address(request.peer, request.headers),
        )

    def refused(self, peer: str | None, response: Response) -> None:
        """A response is sent without a request: to a malformed one, or to a connection over the maximum."""
        self._log.log(
            self._level(response.status),
            EVENT,
            method=None,
            path=None,
            status=response.status,
            code=_error_code(response),
            bytes=response.length,
            milliseconds=None,
            request_id=None,
            operation="none",
            account=None,
            key=None,
            address=self._client_address(peer, {}),
        )

    def _level(self, status: int) -> Literal[10, 20]:
        return logging.INFO if self._info_from is not None and status >= self._info_from else logging.DEBUG


class _Error(msgspec.Struct):
    code: str


def _error_code(response: Response) -> str | None:
    """The `code` of the Error body; None for a response that is not an error."""
    if response.status < _FIRST_ERROR:
        return None
    try:
        return msgspec.json.decode(b"".join(response.chunks), type=_Error).code
    except msgspec.MsgspecError:
        return None


def _shown(path: bytes) -> str:
    """The path as sent, in visible ASCII: other bytes and backslashes as \\xNN. An API key in it is hidden."""
    text = path[:_LONGEST_PATH].decode("latin-1")
    decoded = unquote_to_bytes(text).decode("latin-1") if "%" in text else text
    if looks_like_key(decoded):
        text = hide_keys(decoded)
    return text.translate(_ESCAPES) + ("…" if len(path) > _LONGEST_PATH else "")
