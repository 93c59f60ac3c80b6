"""HTTP requests and responses: what is sent, and what a response means. No I/O."""

import platform
import re
import ssl
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from petstore_client import errors
from petstore_client._types import UNDECODABLE, Secret
from petstore_client._version import __version__

USER_AGENT = f"petstore-client/{__version__} python/{platform.python_version()} httpx2/{httpx2.__version__}"
MAX_SMALL_BODY = 1 << 16  # bytes; no error body and no single record of this API is longer

REQUEST_ID_PREFIX = "petstore-client-"  # shows that a client of this package made the identifier
TRANSPORT_ERRORS = (httpx2.HTTPError, OSError, UnicodeError)
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
    ConnectionRefusedError,
    UnicodeError,  # the name of a proxy that cannot be looked up
)
_PERMANENT = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)
_SPACE = re.compile(r"[\s\x00-\x1f]")
_KEY = re.compile(r"[!-~]+", re.ASCII)
_ORDER = re.compile(r"(?:(?:.*/)?orders/)?(0|-?[1-9][0-9]{0,18})", re.ASCII)  # a Location, perhaps made absolute
_KIND: dict[int, type[errors.APIStatusError]] = {
    401: errors.AuthenticationError,
    403: errors.PermissionDeniedError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    412: errors.PreconditionFailedError,
}


class Target(NamedTuple):
    """Where requests go, and with which key. `base_url` ends with `/v1`, which names the service (D1).

    `proxy` names the variables of the environment that may set a proxy in between.
    """

    base_url: str
    key: Secret
    proxy: str = ""

    def url(self, version: str, path: str) -> str:
        """The address of a path in a version of the API, such as "v1"."""
        return f"{self.base_url.removesuffix('v1')}{version}{path}"

    def headers(self, request_id: str, app_name: str | None, more: Mapping[str, str] | None) -> dict[str, str]:
        """The headers of every request except the key, which the driver adds just before sending."""
        return {
            **(more or {}),
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "User-Agent": f"{app_name} {USER_AGENT}" if app_name else USER_AGENT,
            "X-Request-Id": request_id,
        }


class Reply(NamedTuple):
    """The head of a response whose body has not been read. `encoding` is its Content-Encoding in lower case."""

    status: int
    headers: Mapping[str, str]
    encoding: str


class ErrorBody(msgspec.Struct):
    """The Error record (spec S2.3)."""

    code: str
    message: str
    status: int


def read_target(base_url: str | None, key: Secret) -> Target:
    """Check the base URL and the key; None means that there is none.

    Raises ConfigurationError, which says what to change. Even the local variables of its traceback do not show the key.
    """
    _check_given("base_url", Secret(base_url))
    _check_given("api_key", key)
    if not _KEY.fullmatch(key.text):
        around = _KEY.fullmatch(key.text.strip()) is not None
        what = "space or a line break around it" if around else "characters that keys do not have"
        raise errors.ConfigurationError(f"The API key has {what}; copy it again.")
    return Target(_base_url(base_url or ""), key)


def _check_given(name: str, given: Secret) -> None:
    if not isinstance(given.text, str | None):
        raise errors.ConfigurationError(f"{name} must be a string, not a {type(given.text).__name__}.")
    if what := {None: "missing", "": "empty"}.get(given.text):
        raise errors.ConfigurationError(f"{name} is {what}; pass it, or set PETSTORE_{name.upper()}.")


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        address = httpx2.URL(url)
        address.raw_host.decode("ascii").encode("idna")  # as for a socket: no label is empty or too long
        valid = not _SPACE.search(url) and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, httpx2.InvalidURL):
        valid = False
    if not valid:
        raise errors.ConfigurationError("The base URL is not a valid address; it must look like https://HOST/v1.")
    if parts.username is not None or parts.query or parts.fragment:
        raise errors.ConfigurationError(
            "The base URL must not contain a user, query or fragment; pass the key by itself."
        )
    base_url = str(address).rstrip("/")  # one spelling of each address, so that it has one gate
    if not base_url.endswith("/v1"):
        service = base_url.removesuffix("/v2")  # client.v2 finds version 2 next to version 1
        raise errors.ConfigurationError(f"The base URL must end with the version, /v1; did you mean {service}/v1?")
    return base_url


def connection_error(error: Exception, target: Target) -> errors.APIConnectionError:
    """The exception for a failure of the transport (one of TRANSPORT_ERRORS)."""
    sent, retryable = not isinstance(error, _NOT_SENT), not isinstance(error, _PERMANENT)
    where = f"{target.base_url}{f' (if {target.proxy} applies, through that proxy)' if target.proxy else ''}"
    reason = target.key.redact(" ".join(str(error).split())) or type(error).__name__
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in errors.causes(error)):
        sent = retryable = False
        what = f"The certificate of {where} is not valid ({reason}); is the address right? For a certificate authority"
        message = f"{what} of your own set SSL_CERT_FILE, or pass transport=..., which bypasses HTTPS_PROXY."
    elif isinstance(error, httpx2.PoolTimeout):
        what = "All connections of this client are in use, by iterations that have not ended or by other calls"
        return errors.APITimeoutError(f"{what}; end them, or raise max_connections of the transport.", sent)
    elif isinstance(error, httpx2.TimeoutException | TimeoutError):
        what = f"{where} did not respond" if sent else f"No connection to {where}"
        return errors.APITimeoutError(f"{what} within the timeout ({reason}).", sent)
    elif sent:
        message = f"The connection to {where} broke before the response was complete ({reason})."
    else:
        message = f"No connection to {where} ({reason}); is the address right, and is the server running?"
    return errors.APIConnectionError(message, sent, retryable)


def cause(error: Exception, target: Target) -> Exception | None:
    """The failure of the transport, for the traceback, unless it quotes the key: a server may send back what it got."""
    return error if target.key.redact(str(error)) == str(error) else None


def request_id_of(reply: Reply, sent: str, target: Target) -> str:
    """The X-Request-Id of a response, empty if it has none; `sent` is that of the request.

    The service returns the one that it received. A proxy may have replaced it with one of another form, as Envoy does,
    or added its own, as nginx does. Raises APIConnectionError if the response belongs to another request of this
    package. A 429 or 5xx is acted on in any case, which is safe.
    """
    found = target.key.redact(reply.headers.get("x-request-id", ""))
    each = [found, *map(str.strip, found.split(","))]  # a proxy may have joined them
    if sent in each:
        return sent
    of_package = any(text.startswith(REQUEST_ID_PREFIX) for text in each)
    if of_package and reply.status < 500 and reply.status != 429:
        raise errors.APIConnectionError(
            f"{target.base_url} sent the response to another request: its X-Request-Id is {found[:128]!r} instead of "
            f"{sent!r}. Does another process use this connection?"
        )
    return found[:128]


def reply_of(response: httpx2.Response) -> Reply:
    """The head of a response."""
    encoding = "" if response.is_stream_consumed else response.headers.get("content-encoding", "").strip().lower()
    return Reply(response.status_code, response.headers, encoding)


def check_success(reply: Reply, expected: Collection[int], target: Target) -> None:
    """Raise InvalidResponseError if a response below 400 is not the expected one, for example a login page."""
    status, kind = reply.status, _content_type(reply, target)
    if 300 <= status < 400 and status != 304:
        what = f"redirected to {target.key.redact(reply.headers.get('location', ''))[:200] or 'nowhere'}"
        why = "the client does not follow redirects, so that the key is not sent elsewhere; has the API moved?"
    elif status not in expected:
        what, why = f"responded {status} instead of {' or '.join(map(str, expected))}", "is the base URL right?"
    elif status in (200, 201) and kind != "application/json":
        what = f"responded {status} with {kind} instead of JSON"
        why = "does the base URL lead to the API, or to a page or proxy in front of it?"
    else:
        return
    raise errors.InvalidResponseError(f"{target.base_url} {what}; {why}", status)


def refusal(reply: Reply, body: bytes, target: Target, retry_after: float | None) -> errors.PetstoreError:
    """The exception for a response of 400 or above, except 429."""
    record = read_error(body)
    status = reply.status
    if record is None and status == 404:  # a 404 of this API says what is missing
        what = f"{target.base_url} responded 404 without the Error record of this API"
        return errors.InvalidResponseError(f"{what}; is the base URL right?", status)
    code, message = (record.code, record.message) if record else ("", _foreign(reply, target))
    found = _ORDER.fullmatch(reply.headers.get("location", ""))
    return status_error(ErrorBody(code, message, status), target, retry_after, int(found[1]) if found else None)


def status_error(
    record: ErrorBody, target: Target, retry_after: float | None = None, order_id: int | None = None
) -> errors.APIStatusError:
    """The exception for an Error record; with the order to which a conflict refers, if there is one."""
    kind = _KIND.get(record.status, errors.ServerError if record.status >= 500 else errors.APIStatusError)
    if record.code == "changes_reset":
        kind = errors.ChangesResetError
    code, message = target.key.redact(record.code), target.key.redact(record.message)
    error = kind(code, message, record.status, retry_after)
    if isinstance(error, errors.ConflictError):
        error.order_id = order_id
    return error


def _foreign(reply: Reply, target: Target) -> str:
    kind = _content_type(reply, target)
    what = f"{target.base_url} responded {reply.status} without the Error record of this API ({kind})"
    return f"{what}; the response is probably that of a proxy or load balancer in front of it."


def _content_type(reply: Reply, target: Target) -> str:
    kind = target.key.redact(reply.headers.get("content-type", ""))
    first = kind.partition(",")[0]  # a proxy may have added its own, as nginx does
    return first.partition(";")[0].strip().lower()[:80] or "no content type"


def read_error(body: bytes) -> ErrorBody | None:
    """The Error record, or None if the body is something else."""
    try:
        return msgspec.json.decode(body, type=ErrorBody)
    except UNDECODABLE:
        return None
