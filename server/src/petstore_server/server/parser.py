"""From bytes to requests: llhttp, the parser of Node.js, with bounds on what it may keep in memory."""

import re
from collections import deque
from functools import lru_cache

import httptools

from petstore_server.server.messages import (
    MAX_BODY,
    MAX_HEADER_LINES,
    MAX_HEADERS,
    MAX_TARGET,
    BadRequest,
    Head,
    HeadersTooLarge,
    PayloadTooLarge,
    Request,
    RequestError,
    UnsupportedTransferCoding,
    UriTooLong,
    refused_request,
)
from petstore_server.server.remembered import MAX_SIZE, RememberedRequests

MAX_HEAD = 64 * 1024
"""Bytes of a request's head, or of its trailers, that are parsed: wide enough to read what is refused with 431."""

_MAX_HOST = 300  # bytes; names in the DNS have 253
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+)(?::[0-9]*)?")
_NOTHING: bytes | memoryview = b""
_MALFORMED = "Malformed HTTP/1.1 request."
_LINE_SIZE = 100  # bytes of memory that a header line takes besides its text
_LONE_CR = re.compile(rb"\n\r(?!\n)[\r\n]*\Z")
_FRAMING = (b"content-length", b"transfer-encoding")


class RequestParser:
    """Parses the requests of one connection. Those `remembered`, from any connection, need not be parsed again.

    `requests` are those whose head has arrived, in order, until the connection takes them; what is refused is the last
    of them. `incoming` is the request whose body is still arriving; `begun` counts requests from their first byte on.
    Feed it small pieces: a piece may hold several requests, and the parser cannot stop between them.
    """

    def __init__(self, peer: str | None, remembered: RememberedRequests) -> None:
        self._peer = peer
        self._remembered = remembered
        self.requests: deque[Request] = deque()
        self.incoming: Request | None = None
        self.begun = 0
        self._at_start = True  # the next byte begins a request
        self._in_head = False
        self._lead = self._before = b""  # what precedes a piece, and the one that begins a request: LF, or LF and CR
        self._line: bytes | None = None  # what holds the request line that is arriving, until it is checked
        self._piece = _NOTHING  # what is being parsed
        self._begin_head()
        self._llhttp: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def _begin_head(self) -> None:
        self._unaccounted = 0
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._header_lines = 0

    @property
    def in_message(self) -> bool:
        """Whether a request has begun to arrive and is not complete."""
        return self._in_head or self.incoming is not None

    @property
    def size(self) -> int:
        """About as many bytes of memory as the request takes that is not complete."""
        body = b"" if self.incoming is None else self.incoming.body
        text = max(self._unaccounted, self._header_bytes + len(self._target))
        return text + len(body) + len(self._line or b"") + self._header_lines * _LINE_SIZE

    def feed(self, data: memoryview) -> None:
        """Parse a piece of the input. Raises a RequestError if it is malformed: follow with `refuse`."""
        if not self._at_start or len(data) > MAX_SIZE:
            self._parse(data)
            self._lead = b"\n\r" if self._at_start and bytes(data[-2:]) == b"\n\r" else b""
            return
        begun, text = self.begun, bytes(data)
        request = self._remembered.find(text, self._peer)
        if request is not None:
            self.begun += 1
            self.requests.append(request)
            return
        self._lead = self._lead or b"\n"
        self._parse(text)
        cut = text[-2:] == b"\n\r" or (self.begun == begun and text[-1:] == b"\r")
        self._lead = b"\n\r" if cut else b""
        if self.begun == begun + 1 and not self.in_message:  # exactly one request
            self._remembered.add(text, self.requests[-1])

    def _parse(self, data: bytes | memoryview) -> None:
        self._unaccounted += len(data)
        if self._line is not None and len(self._line) <= 2 * MAX_TARGET:
            self._line += data
        while self._llhttp is not None:
            self._piece = data
            try:
                self._llhttp.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                data = memoryview(self._begin_again() + bytes(data[upgrade.args[0] :]))
            except httptools.HttpParserError as failure:
                if isinstance(failure.__context__, RequestError):  # raised by a callback
                    raise failure.__context__ from None
                raise BadRequest(_MALFORMED) from None
        self._piece = _NOTHING
        if self._unaccounted > MAX_HEAD:
            raise UriTooLong if len(self._target) > MAX_TARGET else HeadersTooLarge

    def _begin_again(self) -> bytes:
        """Take a new llhttp, and return a head with which it will read the rest of the incoming request.

        httptools has llhttp skip the body of a request with CONNECT or Upgrade, and would take it for the next request.
        The new head has the same framing without either. While it is parsed, the request is still `incoming`. The old
        llhttp would refuse it if the request is the last one of its connection (`Connection: upgrade, close`).
        """
        self._llhttp = httptools.HttpRequestParser(self)
        framing = [b"%s: %s" % (name, self._headers[name]) for name in _FRAMING if name in self._headers]
        return b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""])

    def refuse(self, failure: RequestError, current: Request | None = None) -> None:
        """Parse nothing more: `failure` is the response to what was malformed. `current` is the request being answered.

        It takes the place of the request whose body was malformed, unless that has its response already.
        """
        self._in_head = True  # of a message that will never be complete
        malformed, self.incoming = self.incoming, None
        method = malformed.method if malformed is not None else ""
        if self._llhttp is not None and self._target and malformed is None:
            method = self._llhttp.get_method().decode()
        self._llhttp = self._line = None
        self._begin_head()
        if malformed is not None:
            malformed.lose()
            if self.requests:  # it is the last of them
                self.requests.pop()
            elif malformed is not current:
                return
        self.requests.append(refused_request(failure, self._peer, method))

    def close(self) -> None:
        """Forget everything. The parser and this object refer to each other, so that is not left to the collector."""
        self._llhttp = None
        self.requests.clear()
        self.incoming = None
        self._in_head = False

    # Called by llhttp.

    def on_message_begin(self) -> None:
        if self.incoming is not None:
            return
        self.begun += 1
        self._at_start = False
        self._in_head = True
        self._unaccounted = 0
        self._line = bytes(self._piece)
        self._before, self._lead = self._lead, b""

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # trailers are dropped
        if self._line is not None:
            self._check_line(self._line)
        self._header_lines += 1
        if self._header_lines > MAX_HEADER_LINES:
            raise HeadersTooLarge
        name, value = name.lower(), value.strip(b" \t")  # RFC 9110 section 5.5; llhttp leaves tabs
        self._header_bytes += len(name) + len(value) + 4  # ": " and CRLF
        headers = self._headers
        if name not in headers:
            headers[name] = value
        elif self._header_bytes <= MAX_HEADERS:  # beyond, joining would take quadratic time, and the response is 431
            headers[name] += b", " + value

    def on_headers_complete(self) -> None:
        llhttp = self._llhttp
        if llhttp is None or self.incoming is not None:
            return
        if self._line is not None:
            self._check_line(self._line)
        version = llhttp.get_http_version()
        if version not in ("1.1", "1.0"):
            raise BadRequest("Unsupported HTTP version: use HTTP/1.1 or HTTP/1.0.")
        if b"transfer-encoding" in self._headers:
            _check_coding(version, self._headers[b"transfer-encoding"].lower())
        self._in_head = False
        self._unaccounted = 0
        target = self._target
        if not target.startswith(b"/") or b"#" in target:
            target = origin_form(target)
        path, _, query = target.partition(b"?")
        method = llhttp.get_method().decode()
        head = Head(
            method,
            path,
            query,
            self._headers,
            self._fault(version, len(target)),
            version == "1.0",
            # What follows a CONNECT may be meant for the other end of a tunnel.
            llhttp.should_keep_alive() and method != "CONNECT",
            # A server must not send 100 to a client of HTTP/1.0 (RFC 9110 section 10.1.1).
            version != "1.0" and self._headers.get(b"expect", b"").lower() == b"100-continue",
        )
        self.incoming = Request(head, self._peer)
        self.requests.append(self.incoming)

    def _check_line(self, line: bytes) -> None:
        """Refuse what llhttp takes for a request line of HTTP: more spaces, another protocol, a lone CR before it.

        `line` contains it. Raises BadRequest.
        """
        self._line = None
        start = b"%s %s HTTP/" % (self._llhttp.get_method() if self._llhttp else b"", self._target)
        if (line.startswith(start) and self._before != b"\n\r") or len(self._target) > MAX_TARGET:
            return  # a longer target is refused anyway
        before, found, _ = (self._before + line).partition(start)
        if not found or _LONE_CR.search(before):
            raise BadRequest(_MALFORMED)

    def _fault(self, version: str, target_bytes: int) -> type[RequestError] | None:
        """What the response to this head has to be, if it is malformed or too large."""
        if not _is_valid(self._headers.get(b"host"), version):
            return BadRequest
        if target_bytes > MAX_TARGET:
            return UriTooLong
        if self._header_bytes > MAX_HEADERS:
            return HeadersTooLarge
        length = self._headers.get(b"content-length")
        return PayloadTooLarge if length is not None and _exceeds_max_body(length) else None

    def on_body(self, data: bytes) -> None:
        self._unaccounted = 0
        if self.incoming is not None:
            self.incoming.add_body(data)

    def on_message_complete(self) -> None:
        if self.incoming is not None and self._llhttp is not None and not self._llhttp.should_upgrade():
            self._at_start = self.incoming.keep_alive
            self.incoming.finish()
            self.incoming = None
            self._begin_head()  # an idle connection keeps nothing of it


def _is_valid(host: bytes | None, version: str) -> bool:
    """Whether a request of this HTTP version may have this Host (RFC 9112 section 3.2)."""
    if host is None:
        return version == "1.0"
    return len(host) <= _MAX_HOST and _is_host(host)


@lru_cache(maxsize=256)
def _is_host(host: bytes) -> bool:
    """Whether this is a name or an address, with or without a port. Repeated headers, joined with a space, are not."""
    return _HOST.fullmatch(host) is not None


def _exceeds_max_body(content_length: bytes) -> bool:
    """Whether a Content-Length, which the parser has found to be digits, exceeds MAX_BODY.

    The digits are counted before they are converted: int() is slow for many, and refuses more than 4,300.
    """
    digits = content_length.lstrip(b"0")
    return len(digits) > len(str(MAX_BODY)) or int(digits or b"0") > MAX_BODY


def _check_coding(version: str, coding: bytes) -> None:
    """Refuse a body whose end others may see elsewhere, or whose content is encoded.

    Raises BadRequest, UnsupportedTransferCoding.
    """
    if version == "1.0":  # its framing is faulty (RFC 9112 section 6.1)
        raise BadRequest("HTTP/1.0 has no Transfer-Encoding: send Content-Length, or use HTTP/1.1.")
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
