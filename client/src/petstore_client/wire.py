"""Requests and answers as HTTP: what is sent, and what an answer means. No I/O."""

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from petstore_client.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ConfigurationError,
    ConflictError,
    InvalidResponseError,
    NotFoundError,
    PermissionDeniedError,
    PetstoreError,
    ServerError,
)
from petstore_client.version import __version__

USER_AGENT = f"petstore-client/{__version__} python/{platform.python_version()} httpx2/{httpx2.__version__}"
LONGEST_SMALL_BODY = 1 << 16
"""Bytes of an error or of a single record; what is longer is none of this API."""

_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
    ConnectionRefusedError,
)
_SPACE = re.compile(r"[\s\x00-\x1f]")
_KEY = re.compile(r"[!-~]+", re.ASCII)
_KIND: dict[int, type[APIStatusError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
}


class Secret:
    """An API key that shows itself to nobody who does not ask for its text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "'***'"

    def __reduce__(self) -> str:
        raise TypeError("An API key is not pickled; make the client in the process that uses it.")

    def redact(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self.text, "***")


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, and with which key."""

    base_url: str
    key: Secret

    def headers(self, request_id: str) -> dict[str, str]:
        """The headers of every request but the key, which `authorize` adds at the last moment."""
        return {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "User-Agent": USER_AGENT,
            "X-Request-Id": request_id,
        }

    def authorize(self, request: httpx2.Request) -> None:
        """Put the key into a request, whose headers do not show it in any representation."""
        request.headers["Authorization"] = f"Bearer {self.key.text}"


class Reply(NamedTuple):
    """An answer whose body has not been read. `encoding` is the body's Content-Encoding, in lower case."""

    status: int
    headers: Mapping[str, str]
    encoding: str


class ErrorBody(msgspec.Struct):
    """The Error record (spec S2.3)."""

    code: str
    message: str
    status: int


def read_target(base_url: str | None, api_key: str | None, environ: Mapping[str, str]) -> Target:
    """Check the base URL and the key, taken from the environment where they are not given.

    Raises ConfigurationError, which says what to change and never shows the key.
    """
    url = base_url or environ.get("PETSTORE_BASE_URL")
    if not url:
        raise ConfigurationError("There is no base URL: pass base_url, or set PETSTORE_BASE_URL.")
    key = api_key or environ.get("PETSTORE_API_KEY")
    if not key:
        raise ConfigurationError("There is no API key: pass api_key, or set PETSTORE_API_KEY.")
    if not _KEY.fullmatch(key):
        if _KEY.fullmatch(key.strip()):
            raise ConfigurationError("The API key has space or a line break around it; pass api_key.strip().")
        raise ConfigurationError("The API key has characters that no key has (ASCII without spaces); copy it again.")
    return Target(_base_url(url), Secret(key))


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        httpx2.URL(url)
        valid = (
            not _SPACE.search(url)
            and parts.scheme in ("http", "https")
            and parts.hostname is not None
            and (parts.port or 1) > 0
        )
    except (ValueError, httpx2.InvalidURL):
        valid = False
    if not valid:
        raise ConfigurationError("The base URL must look like https://HOST/v1; this one is no such address.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError("The base URL must not hold a user, a query or a fragment; the key goes into api_key.")
    base_url = str(httpx2.URL(url)).rstrip("/")  # one spelling of one address, so that it has one gate
    if not base_url.endswith("/v1"):
        raise ConfigurationError(f"The base URL must end with the version, /v1: {base_url}/v1 perhaps.")
    return base_url


def connection_error(error: httpx2.HTTPError | OSError, target: Target) -> APIConnectionError:
    """What a failure of the transport means to the caller."""
    sent = not isinstance(error, _NOT_SENT)
    reason = target.key.redact(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        if sent:
            return APITimeoutError(f"{target.base_url} did not answer within the timeout ({reason}).", True)
        return APITimeoutError(f"No connection to {target.base_url} came about in time ({reason}).", False)
    if sent:
        return APIConnectionError(f"The connection to {target.base_url} broke before the answer was whole ({reason}).")
    return APIConnectionError(
        f"No connection to {target.base_url} could be made ({reason}); is the address right, and the server up?", False
    )


def encoding_of(response: httpx2.Response) -> str:
    """The Content-Encoding of the body as it will be read."""
    return "" if response.is_stream_consumed else response.headers.get("content-encoding", "").strip().lower()


def check_success(reply: Reply, expected: int, target: Target) -> None:
    """Raise InvalidResponseError where an answer below 400 is not the expected one."""
    status = reply.status
    if 300 <= status < 400 and status != 304:
        where = target.key.redact(reply.headers.get("location", ""))[:200] or "nowhere"
        raise InvalidResponseError(
            f"{target.base_url} answered with a redirect to {where}. It was not followed, so that the key goes nowhere "
            "else; if the API has moved, change the base URL.",
            status,
        )
    if status != expected:
        raise InvalidResponseError(
            f"{target.base_url} answered {status} where this API answers {expected}; is the base URL right?", status
        )
    if status == 200:
        check_json(reply, target)


def check_json(reply: Reply, target: Target) -> None:
    """Raise InvalidResponseError where the body is not declared as JSON, as pages of proxies and log-ins are not."""
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InvalidResponseError(
            f"{target.base_url} answered {reply.status} with {kind[:80] or 'no type'} instead of JSON; does the base "
            "URL lead to the API, or to a page or proxy before it?",
            reply.status,
        )


def refusal(reply: Reply, body: bytes, target: Target, retry_after: float | None) -> PetstoreError:
    """The error that an answer of 400 or above, other than 429, stands for."""
    record = read_error(body)
    status = reply.status
    if record is None and status == 404:  # of this API it would say what is missing
        return InvalidResponseError(
            f"{target.base_url} answered 404 without the Error record of this API; is the base URL right?", status
        )
    code, message = (record.code, record.message) if record else ("", f"The server answered {status}.")
    message = target.key.redact(message)
    if status >= 500:
        return ServerError(code, message, status, retry_after)
    return _KIND.get(status, APIStatusError)(code, message, status)


def read_error(body: bytes) -> ErrorBody | None:
    """The Error record, or None where the body is something else."""
    try:
        return msgspec.json.decode(body, type=ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
