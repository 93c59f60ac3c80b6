"""The grammar of a request's head (RFC 9112): each line matches it as a whole, or the request is malformed.

What a line says is a pure function of its bytes, and kept for the latest ones: most lines are the same in all requests
of a client.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from petstore_server.server.messages import BadRequest, UnsupportedTransferCoding

_KNOWN_LINES = 4096
_MAX_HOST = 300  # bytes; names in the DNS have 253
_MAX_DIGITS = 19  # of a Content-Length
_TOKEN_CHARACTER = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
METHOD = re.compile(rb"(%b{1,32}) " % _TOKEN_CHARACTER)
_REQUEST_LINE = re.compile(rb"%b(/[!-~]*|\*|[A-Za-z0-9\[][!-~]*:[!-~]*) HTTP/([0-9]\.[0-9])" % METHOD.pattern)
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
_FIELD = re.compile(rb"(%b+):(%b)" % (_TOKEN_CHARACTER, _VALUE.pattern))
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+)(?::[0-9]*)?")
MALFORMED = "Malformed HTTP/1.1 request."


@lru_cache(maxsize=_KNOWN_LINES)
def request_line(line: bytes) -> tuple[str, bytes, bytes, bool]:
    """The method, path and query, and whether the version is 1.0. Raises BadRequest."""
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequest(MALFORMED)
    method, target, version = match.groups()
    if version not in (b"1.1", b"1.0"):
        raise BadRequest("Unsupported HTTP version: use HTTP/1.1 or HTTP/1.0.")
    path, _, query = origin_form(target).partition(b"?")
    return method.decode(), path, query, version == b"1.0"


@lru_cache(maxsize=_KNOWN_LINES)
def field(line: bytes) -> tuple[bytes, bytes]:
    """The name, in lower case, and the value of a header line. Raises BadRequest."""
    match = _FIELD.fullmatch(line)
    if match is None:
        raise BadRequest(MALFORMED)
    return match[1].lower(), match[2].strip(b" \t")


@lru_cache(maxsize=64)
def connection_options(value: bytes | None) -> tuple[bool, bool]:
    """Whether the options of a Connection header include `close`, and `keep-alive`."""
    options = [option.strip(b" \t") for option in (value or b"").lower().split(b",")]
    return b"close" in options, b"keep-alive" in options


@lru_cache(maxsize=256)
def is_host(host: bytes | None) -> bool:
    """Whether this is a name or an address, with or without a port. Repeated headers, joined by a comma, are not."""
    return host is not None and len(host) <= _MAX_HOST and _HOST.fullmatch(host) is not None


def is_value(value: bytes) -> bool:
    """Whether a header may have this value. Nearly all are printable ASCII, found faster without the pattern."""
    return (value.isascii() and value.decode().isprintable()) or _VALUE.fullmatch(value) is not None


def content_length(value: bytes) -> int:
    """The number of a Content-Length. Its digits are counted first: int() refuses thousands. Raises BadRequest."""
    digits = value.lstrip(b"0")
    if not value.isdigit() or len(digits) > _MAX_DIGITS:
        raise BadRequest(MALFORMED)
    return int(digits or b"0")


def check_coding(headers: Mapping[bytes, bytes], http_1_0: bool) -> None:
    """Reject ambiguous framing and unsupported codings.

    Raises BadRequest, UnsupportedTransferCoding.
    """
    if http_1_0:  # its framing is faulty (RFC 9112 section 6.1)
        raise BadRequest("HTTP/1.0 has no Transfer-Encoding: send Content-Length, or use HTTP/1.1.")
    if b"content-length" in headers:
        raise BadRequest("Send either Content-Length or Transfer-Encoding, not both.")
    coding = headers[b"transfer-encoding"].lower()
    if coding != b"chunked":
        end_is_known = coding.rpartition(b",")[2].strip() == b"chunked"
        raise UnsupportedTransferCoding if end_is_known else BadRequest(UnsupportedTransferCoding.message)


def origin_form(target: bytes) -> bytes:
    """The path and query of a request target (RFC 9112 section 3.2), without a fragment.

    The absolute form loses its scheme and authority. Targets that name no path (`*`, the authority form of CONNECT, an
    absolute form without a path) become a path that is not served.
    """
    target = target.partition(b"#")[0]
    if target.startswith(b"/"):
        return target
    scheme, separator, rest = target.partition(b"://")
    if separator and scheme.isalpha():
        authority, slash, path = rest.partition(b"/")
        if slash and b"?" not in authority:
            return slash + path
    return b"/" + target
