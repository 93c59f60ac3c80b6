"""From bytes to requests: a strict parser of HTTP/1.1 (RFC 9112), with bounds on what it may keep in memory."""

import re
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from petstore_server.server.grammar import (
    MALFORMED,
    METHOD,
    check_coding,
    connection_options,
    content_length,
    field,
    is_host,
    is_value,
    request_line,
)
from petstore_server.server.messages import (
    MAX_BODY,
    MAX_HEADER_LINES,
    MAX_HEADERS,
    MAX_TARGET,
    BadRequest,
    HeadersTooLarge,
    PayloadTooLarge,
    Request,
    RequestError,
    UriTooLong,
)

MAX_HEAD = 64 * 1024
"""Bytes of a request's head, or of its trailers, that are read: wide enough to answer what is refused with 431."""

MAX_KNOWN_HEAD = 1024
"""Bytes of a head whose lines are remembered: most lines are the same in all requests of a client."""

_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t -~\x80-\xff]*)?")
_NOT_TEXT = re.compile(rb"[^\t\r\n -~\x80-\xff]|\r[^\n]|(?<!\r)\n")
_BLANK_LINES = re.compile(rb"(?:\r\n)*")
_Said = tuple[str, bytes, bytes, dict[bytes, bytes]]  # method, path, query, headers
_MEANINGFUL = {b"transfer-encoding", b"content-length", b"host", b"connection"}  # to the parser
_MAX_UNLIKE = 8  # a connection on which heads differ more, such as one of a proxy, compares no more of them
_LINE_END = b"\r\n"
_END = b"\r\n\r\n"


class RequestParser:
    """Parses the requests of one connection: `feed` it what arrives, and `parse` one request after another.

    `requests` are those whose head has arrived, in order, until the connection takes them; what is refused is the last
    of them. `incoming` is the request whose body is still arriving; `begun` counts requests from their first byte on.
    `starved` is true while nothing can be parsed until more arrives.
    """

    def __init__(self, peer: str | None, body_limits: Mapping[bytes, int] = MappingProxyType({})) -> None:
        """`body_limits` has the paths with another limit than MAX_BODY for the bytes of a body."""
        self._peer = peer
        self._body_limits = body_limits
        self.requests: deque[Request] = deque()
        self.incoming: Request | None = None
        self.begun = 0
        self.starved = True
        self._data = b""
        self._at = 0  # where in `_data` that begins which is not parsed yet
        self._searched = 0  # up to where no end of a head or of a line was found
        self._blank = 0  # bytes of empty lines since the last request
        self._in_head = False
        self._chunked: bool
        self._awaited: str  # in a chunked body, outside of data: "size", "end" of the chunk, or "trailers"
        self._left: int  # bytes of the body, or of the chunk
        self._plain_head = b""  # the latest one of HTTP/1.1 without a body: the next one is often equal
        self._plain: _Said  # what it says
        # The bytes before and behind what changes: the request line, or the value of the header with this name.
        self._around = (b"", b"", b"")
        self._similar: _Said  # what a head with these bytes says, except for that
        self._unlike = 0  # plain heads in a row that differed from the one before in several lines

    @property
    def in_message(self) -> bool:
        """Whether a request has begun to arrive and is not complete."""
        return self._in_head or self.incoming is not None

    @property
    def size(self) -> int:
        """Bytes of memory that the incomplete request takes, with what is not parsed."""
        return len(self._data) + (0 if self.incoming is None else len(self.incoming.body))

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self.starved = False
        if self._data:
            data = self._data[self._at :] + data
            self._searched -= self._at
            self._at = 0
        self._data = data

    def parse(self) -> None:
        """Parse up to the end of one request, or as much of it as has arrived.

        Raises a RequestError if it is malformed: follow with `refuse`.
        """
        if self.incoming is None:
            if self._parse_known():
                return
            self._parse_head()
        if self.incoming is not None and self._take_body(self.incoming):
            self.incoming.finish()
            self.incoming = None
        if self._at == len(self._data):  # an idle connection keeps only a short head
            self._data, self._at, self._searched, self.starved = b"", 0, 0, True

    def refuse(self, failure: RequestError, current: Request | None = None) -> None:
        """Parse nothing more: `failure` is the response to what was malformed. `current` is the request being answered.

        It takes the place of the request whose body was malformed, unless that has its response already.
        """
        word = METHOD.match(self._data, self._at)
        malformed, self.incoming = self.incoming, None
        self.close()
        if malformed is None:
            method = word[1].decode() if word else ""
        else:
            method = malformed.method
            malformed.lose()
            if self.requests:  # it is the last of them
                self.requests.pop()
            elif malformed is not current:
                return
        request = Request(method, b"", b"", {}, self._peer)
        request.refusal = failure
        request.keep_alive = False
        self.requests.append(request)

    def close(self) -> None:
        """Parse nothing more: whatever arrives belongs to a request that is never complete."""
        self._data, self._at, self._searched = b"", 0, 0
        self.starved = self._in_head = True

    def _parse_known(self) -> bool:
        """Parse what has arrived if it is a plain head that is known, or known except for one line.

        Return whether it is.
        """
        data = self._data
        if self._at or self._in_head or self._unlike == _MAX_UNLIKE or len(data) > MAX_KNOWN_HEAD:
            return False
        if data == self._plain_head:
            said = self._plain
        else:
            before, behind, name = self._around
            value = data.removeprefix(before).removesuffix(behind)
            if not behind or len(before) + len(value) + len(behind) != len(data):
                return False
            method, path, query, headers = self._similar
            if name:
                if not is_value(value):
                    return False
                headers = headers.copy()
                headers[name] = value.strip(b" \t")
            elif _LINE_END in value:  # more than the request line differs
                return False
            else:
                method, path, query, http_1_0 = request_line.__wrapped__(value)
                if http_1_0 or method == "CONNECT":
                    return False
            said = method, path, query, headers
        self.begun += 1
        self._data, self._blank, self.starved = b"", 0, True
        self.requests.append(Request(*said, self._peer))
        return True

    def _parse_head(self) -> None:
        if self._data[self._at] in _LINE_END and not self._skip_blank_lines():
            return
        if not self._in_head:
            self.begun += 1
        data, at = self._data, self._at
        end = data.find(_END, self._searched)
        self._in_head = end == -1
        if self._in_head:
            self._await(_END)
            line, complete, _ = data[at:].partition(_LINE_END)
            if complete:
                request_line.__wrapped__(line)  # so that another protocol is refused at once
            return
        request = self._read_head(data[at:end])
        self._at = self._searched = end + len(_END)
        self._blank = 0
        self.requests.append(request)
        if not request.complete:
            self.incoming = request

    def _skip_blank_lines(self) -> bool:
        """Skip empty lines before a request (RFC 9112 section 2.2); return whether something else follows.

        Raises HeadersTooLarge.
        """
        start, self._at = self._at, _BLANK_LINES.match(self._data, self._at).end()  # type: ignore[union-attr]
        self._blank += self._at - start
        if self._blank > MAX_HEAD:
            raise HeadersTooLarge
        self._searched = self._at
        self.starved = self._data[self._at :] in (b"", b"\r")
        return not self.starved

    def _await(self, end: bytes) -> None:
        """Wait for the end of a head or a line. Raises BadRequest, HeadersTooLarge, UriTooLong if it cannot come."""
        # What was parsed before may end in a CR, which does not belong to this LF.
        if self._data.startswith(b"\n", self._at) or _NOT_TEXT.search(self._data, self._searched):
            raise BadRequest(MALFORMED)
        if len(self._data) - self._at > MAX_HEAD:
            target = self._data[self._at :].partition(b" ")[2].partition(b" ")[0]
            raise UriTooLong if self._in_head and len(target) > MAX_TARGET else HeadersTooLarge
        self._searched = max(self._at, len(self._data) - len(end) + 1)
        self.starved = True

    def _read_head(self, head: bytes) -> Request:
        first, *lines = head.split(_LINE_END)
        if len(lines) > MAX_HEADER_LINES:
            raise HeadersTooLarge
        known = len(head) <= MAX_KNOWN_HEAD
        method, path, query, http_1_0 = (request_line if known else request_line.__wrapped__)(first)
        fields = [*map(field if known else field.__wrapped__, lines)]
        headers = dict(fields)
        if len(headers) < len(fields):
            headers = {}
            for name, value in fields:
                headers[name] = value if name not in headers else headers[name] + b", " + value
        request = Request(method, path, query, headers, self._peer)
        request.http_1_0 = http_1_0
        closes, keeps = connection_options(headers.get(b"connection"))
        # What follows a CONNECT may be meant for the other end of a tunnel.
        request.keep_alive = not closes and (keeps or not http_1_0) and method != "CONNECT"
        self._left, self._chunked = 0, b"transfer-encoding" in headers
        framed = self._chunked or b"content-length" in headers
        if framed:
            if self._chunked:
                check_coding(headers, http_1_0)
                self._awaited = "size"
            else:
                self._left = content_length(headers[b"content-length"])
            # A server must not send 100 to a client of HTTP/1.0 (RFC 9110 section 10.1.1).
            request.awaits_continue = not http_1_0 and headers.get(b"expect", b"").lower() == b"100-continue"
            request.complete = not (self._left or self._chunked)
            request.max_body = self._body_limits.get(path, MAX_BODY)
        if len(head) > MAX_TARGET or self._left > request.max_body or not is_host(headers.get(b"host")):
            request.fault = self._fault(request, len(head) - len(first))
        elif self._unlike < _MAX_UNLIKE and known and request.keep_alive and not (framed or http_1_0):
            self._plain = (method, path, query, headers)
            self._remember(head + _END, [first, *lines], repeats=len(headers) < len(lines))
        return request

    def _remember(self, head: bytes, lines: list[bytes], *, repeats: bool) -> None:
        """Remember a plain head, and what is around the change if one line differs from the head before."""
        previous = self._plain_head.split(_LINE_END)[:-2]
        changed = [line for line, other in zip(lines, previous, strict=False) if line != other]
        self._plain_head = head
        self._unlike = self._unlike + 1 if len(changed) > 1 else 0
        if changed == lines[:1]:
            self._around, self._similar = (b"", head[len(lines[0]) :], b""), self._plain
        elif len(changed) == 1 and not repeats:
            name = changed[0].partition(b":")[0]
            if name.lower() not in _MEANINGFUL:
                before, _, behind = head.partition(_LINE_END + changed[0] + _LINE_END)
                self._around = (before + _LINE_END + name + b":", _LINE_END + behind, name.lower())
                self._similar = self._plain

    def _fault(self, request: Request, header_bytes: int) -> RequestError | None:
        """What is wrong with a request that is not malformed, if anything is."""
        host = request.headers.get(b"host")
        if not (request.http_1_0 if host is None else is_host.__wrapped__(host)):
            return BadRequest()
        if len(request.path) + len(request.query) + bool(request.query) > MAX_TARGET:
            return UriTooLong()
        if header_bytes > MAX_HEADERS:
            return HeadersTooLarge()
        return PayloadTooLarge(request.max_body) if self._left > request.max_body else None

    def _take_body(self, request: Request) -> bool:
        """Take what has arrived of the body; return whether that was the rest."""
        parts, whole = [], False
        while not whole and self._at < len(self._data):
            if self._left:
                part = self._data[self._at : self._at + self._left]
                self._at = self._searched = self._at + len(part)
                self._left -= len(part)
                parts.append(part)
                whole = not (self._left or self._chunked)
            else:
                awaited = _END if self._awaited == "trailers" else _LINE_END
                end = self._data.find(awaited, self._searched)
                if end < 0:
                    self._await(awaited)
                    break
                line = self._data[self._at : end]
                self._at = self._searched = end + len(awaited)
                whole = self._read_chunk_line(line)
        request.add_body(b"".join(parts))
        return whole

    def _read_chunk_line(self, line: bytes) -> bool:
        """Read what is not data in a chunked body (RFC 9112 section 7.1); return whether the body ends with it."""
        match self._awaited:
            case "size":
                size = _CHUNK.fullmatch(line)
                if size is None:
                    raise BadRequest(MALFORMED)
                self._left = int(size[1], 16)
                self._awaited = "end" if self._left else "trailers"
                if not self._left:  # the trailers end with an empty line, and there may be none
                    self._at = self._searched = self._at - len(_LINE_END)
                return False
            case "end":
                if line:
                    raise BadRequest(MALFORMED)
                self._awaited = "size"
                return False
        for trailer in line.split(_LINE_END)[1:]:
            field.__wrapped__(trailer)  # and drop it
        return True
