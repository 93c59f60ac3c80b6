"""The request parser: its bounds, and what it takes for a request."""

import asyncio
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from petstore_server.server import grammar
from petstore_server.server.grammar import origin_form
from petstore_server.server.messages import (
    MAX_BODY,
    MAX_HEADER_LINES,
    MAX_HEADERS,
    MAX_TARGET,
    BadRequest,
    Disconnected,
    HeadersTooLarge,
    PayloadTooLarge,
    Request,
    RequestError,
    UnsupportedTransferCoding,
    UriTooLong,
)
from petstore_server.server.parser import MAX_KNOWN_HEAD, RequestParser

MAX_HEAD = 64 * 1024
LENGTH, CODING = b"Host: x\r\nContent-Length: ", b"Host: x\r\nTransfer-Encoding: "
LIST = b"GET /v1/store/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n\r\n"


def take(one: RequestParser, data: bytes) -> None:
    """Parse all requests in what has arrived."""
    one.feed(data)
    while not one.starved:
        one.parse()


def feed(*pieces: bytes) -> tuple[list[Request], type[RequestError] | None]:
    """The requests in these pieces, and with what the parser refused them."""
    one = RequestParser("192.0.2.1")
    refused: type[RequestError] | None = None
    try:
        for piece in pieces:
            take(one, piece)
    except RequestError as error:
        refused = type(error)
    return list(one.requests), refused


def said(one: Request) -> dict[str, object]:
    """All attributes of a request, also those that have their defaults."""
    return {**vars(Request), **vars(one), "fault": one.fault and type(one.fault)}


def request(*lines: bytes, target: bytes = b"/", version: bytes = b"1.1") -> bytes:
    return b"\r\n".join([b"POST %s HTTP/%s" % (target, version), *lines, b"", b""])


def fault(message: bytes) -> type[RequestError] | None:
    [one], refused = feed(message)
    assert refused is None
    return None if one.fault is None else type(one.fault)


@pytest.mark.parametrize(
    ("start", "refusal"),
    [
        (b"GET / HTTP/1.1\r\nX: ", HeadersTooLarge),
        (b"GET /%s HTTP/1.1\r\nX: " % (b"x" * (MAX_TARGET - 1)), HeadersTooLarge),
        (b"GET /%s HTTP/1.1\r\nX: " % (b"x" * MAX_TARGET), UriTooLong),
        (b"GET /", UriTooLong),
    ],
    ids=["headers", "headers behind the longest target", "headers behind a longer one", "target"],
)
def test_a_head_of_64_kib_without_an_end_is_waited_for_and_a_longer_one_is_refused(
    start: bytes, refusal: type[RequestError]
) -> None:
    head = start.ljust(MAX_HEAD, b"x")
    pieces = [head[place : place + 1024] for place in range(0, MAX_HEAD, 1024)]
    assert ([], None) == feed(head) == feed(*pieces)
    assert ([], refusal) == feed(head, b"x") == feed(*pieces, b"x")


def test_trailers_are_bounded_and_the_parts_of_a_body_are_not_counted_with_them() -> None:
    head = request(b"Host: x", b"Transfer-Encoding: chunked")
    chunks = [b"1\r\nx\r\n"] * 16_000  # more bytes than a head may have
    [one], refused = feed(head, *chunks, b"0\r\n\r\n")
    assert (None, True, None, 16_000) == (refused, one.complete, one.fault, len(one.body))
    trailer = b"0\r\nX: "
    assert feed(head, trailer.ljust(MAX_HEAD + 1, b"x"))[1] is None  # without the size of the last chunk
    assert feed(head, trailer.ljust(MAX_HEAD + 2, b"x"))[1] is HeadersTooLarge
    long = request(b"Host: x", b"Transfer-Encoding: chunked", b"X: " + b"x" * 30_000)  # is counted apart
    assert feed(long, b"1\r\nx", b"\r\n0\r\nX: ".ljust(MAX_HEAD, b"x"))[1] is None


def test_each_request_of_a_connection_is_counted_by_itself() -> None:
    lines = [b"Host: x", *[b"X: " + b"x" * (MAX_HEADERS // 100)] * 60]
    targets = [b"/%d%s" % (number, b"x" * 5000) for number in range(4)]
    requests, refused = feed(*[request(*lines, target=target) for target in targets])
    assert (None, targets) == (refused, [one.path for one in requests])
    assert {None} == {one.fault for one in requests}


def test_the_bounds_are_those_of_the_interface() -> None:
    assert (8_192, 32_768, 65_536, 100) == (MAX_TARGET, MAX_HEADERS, MAX_BODY, MAX_HEADER_LINES)
    assert "The request target exceeds 8 KiB; shorten it." == str(UriTooLong())
    assert "The request headers exceed 32 KiB or 100 lines; send fewer or shorter ones." == str(HeadersTooLarge())
    assert str(PayloadTooLarge()).startswith("The request body exceeds 64 KiB; ")


@pytest.mark.parametrize("parts", [1, 3])
def test_a_target_and_headers_are_too_large_beyond_their_bounds(parts: int) -> None:
    for size, target_fault in ((MAX_TARGET, None), (MAX_TARGET + 1, UriTooLong)):
        for begin in (b"/", b"/?"):
            assert target_fault is fault(request(b"Host: x", target=begin.ljust(size, b"x")))
    host = len(b"host: x\r\n")
    each = (MAX_HEADERS - host) // parts
    for more, headers_fault in ((0, None), (1, HeadersTooLarge)):
        sizes = [each] * (parts - 1) + [MAX_HEADERS - host - each * (parts - 1) + more]
        lines = [b"%c: " % (97 + number) + b"x" * (size - 5) for number, size in enumerate(sizes)]
        assert headers_fault is fault(request(b"Host: x", *lines))


def test_values_lose_the_blanks_around_them_and_those_of_a_repeated_header_are_joined() -> None:
    [one], _ = feed(request(b"Host:\t x \t", b"X: 1", b"x: \t2 b\t", b"X: 3"))
    assert {b"host": b"x", b"x": b"1, 2 b, 3"} == one.headers


def test_more_than_100_header_lines_are_refused_at_once() -> None:
    lines = [b"Host: x", *[b"a:"] * (MAX_HEADER_LINES - 1)]
    assert fault(request(*lines)) is None
    assert ([], HeadersTooLarge) == feed(request(*lines, b"a:"))


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        (b"Host: " + b"x" * 300, b"1.1", None),
        (b"Host: " + b"x" * 301, b"1.1", BadRequest),
        (b"Host: x y", b"1.1", BadRequest),
        *[(b"Host: " + host, b"1.1", None) for host in (b"[2001:db8::1]:80", b"a_b:8080", b"192.0.2.1", b"a:")],
        *[(b"Host: " + host, b"1.1", BadRequest) for host in (b"", b"a/b", b"u@a", b"a:b", b"a:1:2", b"http://a")],
        *[(b"Host: " + host, b"1.1", BadRequest) for host in (b"[::1", b"[a]x", b"::1", b"a\xe9", b"<a>")],
        *[(b"Host: a\r\nHost:" + host, b"1.1", BadRequest) for host in (b" a", b" b", b"")],
        (b"Host: [::ffff:192.0.2.1]", b"1.1", None),
        (b"A: b", b"1.1", BadRequest),
        (b"A: b", b"1.0", None),
        (b"Host: x y", b"1.0", BadRequest),
        *[(LENGTH + length, b"1.1", None) for length in (b"0", b"%d" % MAX_BODY, b"000%d" % MAX_BODY, b"0" * 5_000)],
        *[(LENGTH + length, b"1.1", PayloadTooLarge) for length in (b"%d" % (MAX_BODY + 1), b"0" + b"9" * 19)],
        *[(CODING + coding, b"1.1", None) for coding in (b"chunked", b"Chunked")],
        *[(CODING + coding, b"1.1", UnsupportedTransferCoding) for coding in (b"gzip, chunked", b"gzip,chunked")],
        *[
            (CODING + coding, b"1.1", BadRequest)
            for coding in (b"gzip", b"xchunked", b"chunked\r\nTransfer-Encoding: identity")
        ],
        *[(CODING + coding, b"1.0", BadRequest) for coding in (b"chunked", b"gzip, chunked")],
    ],
)
def test_the_host_the_length_and_the_coding_are_checked(
    line: bytes, version: bytes, expected: type[RequestError] | None
) -> None:
    requests, refused = feed(request(line, version=version))
    assert expected is (refused or (requests[0].fault and type(requests[0].fault)))


@pytest.mark.parametrize(
    ("lines", "version", "keep_alive", "awaits_continue"),
    [
        ((b"Expect: 100-Continue", b"Content-Length: 1"), b"1.1", True, True),
        ((b"Expect: 200-continue", b"Content-Length: 1"), b"1.1", True, False),
        ((b"Expect: 100-continue", b"Content-Length: 1"), b"1.0", False, False),
        ((b"Connection: keep-alive", b"Content-Length: 1"), b"1.0", True, False),
        ((b"Connection: close", b"Content-Length: 1"), b"1.1", False, False),
    ],
)
def test_the_head_says_whether_the_connection_goes_on_and_whether_100_is_awaited(
    lines: tuple[bytes, ...], version: bytes, keep_alive: bool, awaits_continue: bool
) -> None:
    [one], _ = feed(request(b"Host: x", *lines, target=b"http://x/a?b?c#d", version=version))
    assert (version == b"1.0", keep_alive, awaits_continue) == (one.http_1_0, one.keep_alive, one.awaits_continue)
    assert ("POST", b"/a", b"b?c", "192.0.2.1", False) == (one.method, one.path, one.query, one.peer, one.complete)


@pytest.mark.parametrize("lines", [(b"Upgrade: h2c", b"Connection: upgrade"), ()], ids=["upgrade", "plain"])
@pytest.mark.parametrize(
    ("framing", "body"),
    [
        ((b"Content-Length: 6",), b"ab\r\nc\r"),
        ((b"Transfer-Encoding: chunked",), b"6\r\nab\r\nc\r\r\n0\r\nX-Trailer: y\r\n\r\n"),
        ((), b""),
    ],
    ids=["length", "chunked", "none"],
)
def test_a_body_ends_where_its_framing_says_with_and_without_an_upgrade(
    lines: tuple[bytes, ...], framing: tuple[bytes, ...], body: bytes
) -> None:
    data = request(b"Host: x", *lines, *framing, target=b"/1") + body + request(b"Host: y", target=b"/2")
    for pieces in ([data], [data[:-30], data[-30:]], [bytes([byte]) for byte in data]):
        requests, refused = feed(*pieces)
        assert (None, [b"/1", b"/2"]) == (refused, [one.path for one in requests])
        assert [b"ab\r\nc\r" if body else b"", b""] == [one.body for one in requests]
        assert ([True, True], b"y") == ([one.complete for one in requests], requests[1].headers[b"host"])
        assert b"x-trailer" not in requests[0].headers
    last = request(b"Host: x", b"Upgrade: h2c", b"Connection: upgrade, close", *framing) + body
    [one], refused = feed(last)
    assert (None, True, False, requests[0].body) == (refused, one.complete, one.keep_alive, one.body)


def test_nothing_behind_a_connect_is_a_request_on_a_connection_that_goes_on() -> None:
    requests, _ = feed(request(b"Host: x", target=b"x:443").replace(b"POST", b"CONNECT"))
    assert [("CONNECT", False)] == [(one.method, one.keep_alive) for one in requests]


def test_the_parser_knows_what_has_begun_and_what_is_still_arriving() -> None:
    one = RequestParser(None)
    assert (True, False, 0) == (one.starved, one.in_message, one.begun)
    states = []
    for piece in (b"\r\n", b"\r", b"\nPO", b"ST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", b"a", b"b", b"P"):
        take(one, piece)
        states.append((one.in_message, one.begun, one.incoming is not None, one.size))
    begun = [(False, 0, False, 0), (False, 0, False, 1), (True, 1, False, 4), (True, 1, True, 0), (True, 1, True, 1)]
    assert [*begun, (False, 1, False, 0), (True, 2, False, 1)] == states
    one.close()
    assert (True, 0, True) == (one.starved, one.size, one.in_message)


def test_a_malformed_body_ends_the_wait_of_its_request_for_it() -> None:
    one = RequestParser("192.0.2.1")
    take(one, request(b"Host: x", b"Transfer-Encoding: chunked"))
    with pytest.raises(BadRequest):
        take(one, b"x\r\n")
    taken = one.requests.popleft()
    one.refuse(BadRequest(), taken)
    with pytest.raises(Disconnected):
        asyncio.run(taken.receive_body())


def test_blank_lines_before_a_request_are_bounded() -> None:
    lines = b"\r\n" * (MAX_HEAD // 2)
    assert (None, HeadersTooLarge) == (feed(lines)[1], feed(lines + b"\r\n")[1])
    for first in ((request(b"Host: x"),), (LIST, LIST)):
        assert feed(lines, *first, lines)[1] is None  # those before each request are counted apart


@pytest.mark.parametrize(
    ("target", "origin"),
    [
        (b"/a?b", b"/a?b"),
        (b"http://x/a?b#c", b"/a?b"),
        (b"http://x", b"/http://x"),
        (b"*", b"/*"),
        (b"x:443", b"/x:443"),
        (b"//v1/store", b"//v1/store"),
        (b"/a#b", b"/a"),
        (b"http://x?y/z", b"/http://x?y/z"),
        (b"http:///?y", b"/?y"),
        (b"http://x#/y", b"/http://x"),
        (b"h2://x/a", b"/h2://x/a"),
        (b"mailto:a/b", b"/mailto:a/b"),
    ],
)
def test_a_target_is_brought_into_origin_form(target: bytes, origin: bytes) -> None:
    assert origin == origin_form(target)


GOOD = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("method", ["patch", "Get", "M-SEARCH", "VERSION_2", "A" * 32, "!#$%&'*+-.^_`|~"])
def test_any_token_is_a_method(method: str) -> None:
    requests, refused = feed(GOOD.replace(b"GET", method.encode()))
    assert ([method], None) == ([request.method for request in requests], refused)


@pytest.mark.parametrize(
    "malformed",
    [
        b"\rGET / HTTP/1.1",
        b"\r\n\rGET / HTTP/1.1",
        b"\r\r\nGET / HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET /  HTTP/1.1",
        b"GET / RTSP/1.0",
        b"GET / HTTP/0.9",
        b"GET / HTTP/2.0",
        b"GET / RTSP/1.1",
        b"SOURCE / ICE/1.0",
        b"~",
    ],
)
@pytest.mark.parametrize("before", [b"", GOOD, GOOD.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\nabc")])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_only_a_request_line_of_http_is_taken_for_one(malformed: bytes, before: bytes, size: int) -> None:
    if malformed.startswith(b"\r") and before.endswith(b"abc"):
        before = GOOD  # a CR behind a body is not the start of a line
    if malformed.startswith(b"\r\r"):
        size = 1000
    data = before + malformed + b"\r\nHost: a\r\n\r\n"
    requests, refused = feed(*(data[place : place + size] for place in range(0, len(data), size)))
    assert (BadRequest, before != b"") == (refused, len(requests))


@pytest.mark.parametrize(
    "malformed",
    [
        GOOD.replace(b"Host: a", b"Host : a"),
        *(
            GOOD.replace(b"Host: a", b"Host: a" + more)
            for more in (b"\nX: b", b"\rX: b", b"\r\n folded", b"\r\n: b", b"\r\nno colon")
        ),
        *(GOOD.replace(b"Host: a", b"Host: a\r\nX" + rest) for rest in (b": a\x00b", b": a\x7fb", b"\xe9: b")),
        *(GOOD.replace(b"GET", method) for method in (b"G" * 33, b"G(T", b"G\xe9T", b"")),
        *(GOOD.replace(b"/x", target) for target in (b"x", b"/\xe9", b"/a b")),
        GOOD.replace(b" HTTP/1.1", b""),
        GOOD.replace(b"Host: a", b"Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked"),
        *(
            GOOD.replace(b"Host: a", b"Host: a\r\nContent-Length: " + b)
            for b in (b"", b"+1", b"1 1", b"1, 1", b"0x1", b"1\r\nContent-Length: 1", b"1" * 20)
        ),
        *(
            GOOD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
            for body in (
                b"\r\n",
                b"g\r\n",
                b"-1\r\n",
                b"1 \r\n",
                b"1" * 17 + b"\r\n",
                b"1\r\nab\r\n",
                b"2\r\na\r\n",
                b"1\na\n",
                b"0\r\nX\r\n\r\n",
            )
        ),
    ],
)
def test_what_does_not_match_the_grammar_is_malformed_however_it_arrives(malformed: bytes) -> None:
    for pieces in ([GOOD + malformed], [GOOD, malformed], [bytes([byte]) for byte in GOOD + malformed]):
        requests, refused = feed(*pieces)
        assert BadRequest is refused
        assert [True] == [one.complete for one in requests[:1]]
        assert [] == [one for one in requests[1:] if one.complete]


@pytest.mark.parametrize(
    "start", [b"\x16\x03\x01", b"SSH-2.0-x\r\n", b"GET / HTTP/2.0\r\n", b"GET /\r\n", b"GET / HTTP/1.1\n"]
)
def test_another_protocol_is_refused_before_its_head_is_complete(start: bytes) -> None:
    assert ([], BadRequest) == feed(start)
    assert ([], BadRequest) == feed(*(bytes([byte]) for byte in start))


@given(
    st.lists(st.sampled_from((GOOD, LIST, GOOD.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\nabc"))), max_size=5),
    st.lists(st.integers(0, 400)),
)
def test_requests_are_the_same_wherever_their_bytes_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(messages)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found, refused = feed(*(data[start:end] for start, end in pairwise(edges)))
    expected = [feed(message)[0][0] for message in messages]
    assert refused is None
    assert [*map(said, expected)] == [*map(said, found)]


def test_lines_of_a_head_are_known_again_up_to_its_bound() -> None:
    for size, known in ((MAX_KNOWN_HEAD, True), (MAX_KNOWN_HEAD + 1, False)):
        data = LIST.replace(b"Host: x", b"Host: x\r\nX: " + b"x" * (size - len(LIST) - 1))
        grammar.field.cache_clear()
        grammar.request_line.cache_clear()
        assert size == len(data) - 4
        feed(data, data + data)
        expected = (1, 1, 3) if known else (0, 0, 0)
        line, lines = grammar.request_line.cache_info(), grammar.field.cache_info()
        assert expected == (min(line.hits, 1), line.misses, lines.misses)


def test_a_head_equal_to_the_one_before_is_not_read_again() -> None:
    other = request(b"Host: x", b"A: b")
    with_body = request(b"Host: x", b"Content-Length: 1") + b"a"
    old = request(b"Host: x", b"Connection: keep-alive", version=b"1.0")
    faulty = request(b"Host: x y")
    messages = [LIST, LIST, other, other, LIST, with_body, with_body, LIST, old, old, faulty, faulty, LIST]
    found, refused = feed(*messages)
    assert refused is None
    assert [said(feed(message)[0][0]) for message in messages] == [*map(said, found)]
    known = [one.headers is before.headers for before, one in pairwise(found)]
    assert [True, False, True, *[False] * 9] == known
    half = request(b"Host: x", b"Content-Length: 20")
    assert feed(LIST, half, LIST)[1] is BadRequest  # which is not a head: it begins with the body


VALUES = (b"a", b" b\t", b"", b"close", b"1", b"0", b"chunked", b"100-continue", b"a b", b"\xe9", b"\x00", b"\x7f")
SMUGGLING = (b"a\r\nY: b", b"a\r\n\r\n" + GOOD[:-4], b"a\n", b"a\r\n b", b"a\r", b"x" * MAX_KNOWN_HEAD)


def assert_each_says_what_it_says_by_itself(messages: Iterable[bytes]) -> None:
    """Of the messages of one connection, until one ends it or is not whole."""
    one = RequestParser("192.0.2.1")
    for message in messages:
        expected, refused = feed(message)
        with pytest.raises(refused) if refused else nullcontext():
            take(one, message)
        assert [*map(said, expected)] == [*map(said, one.requests)]
        if refused or one.in_message or not expected[-1].keep_alive:
            break
        one.requests.clear()


@example(b"Connection", b"/ HTTP/1.1", b"Host: x", [b"close"])
@example(b"Host", b"/ HTTP/1.1", b"X: y", [b"a b"])
@given(
    st.sampled_from((b"X", b"Traceparent", b"Connection", b"Host", b"Content-Length", b"Expect", b"Transfer-Encoding")),
    st.sampled_from((b"/ HTTP/1.1", b"/ HTTP/1.0", b"/?q HTTP/1.1")),
    st.sampled_from((b"X: y", b"Host: x", b"A: b\r\nHost: x", b"Host: x\r\ntraceparent: a")),
    st.lists(st.sampled_from((*VALUES, *SMUGGLING)), min_size=2, max_size=6),
)
def test_heads_that_differ_in_one_value_say_what_each_says_by_itself(
    name: bytes, target: bytes, other: bytes, values: list[bytes]
) -> None:
    """A head that the connection knows except for a value is read as any other, whatever the value is."""
    for line in (b"%b\r\n%b: %%b" % (other, name), b"%b: %%b\r\n%b" % (name, other)):
        assert_each_says_what_it_says_by_itself(
            b"GET %b\r\n%b\r\n\r\n" % (target, line % value) for value in (b"a", b"b", *values)
        )


@example([b"GET / HTTP/1.0", b"GET / HTTP/1.1"])
@example([b"CONNECT a:1 HTTP/1.1", b"GET / HTTP/1.1"])
@given(
    st.lists(
        st.builds(
            b"%b %b HTTP/%b".__mod__,
            st.tuples(
                st.sampled_from((b"GET", b"DELETE", b"CONNECT", b"get", b"")),
                st.sampled_from(
                    (b"/", b"/a?b=c", b"*", b"http://x/y", b"a:1", b"/ /", b"/\xe9", b"/\r\nA: b", b"\r\n")
                ),
                st.sampled_from((b"1.1", b"1.0", b"1.2", b"1.1\n")),
            ),
        ),
        max_size=4,
    )
)
def test_heads_that_differ_in_their_request_line_say_what_each_says_by_itself(lines: list[bytes]) -> None:
    assert_each_says_what_it_says_by_itself(
        line + b"\r\nHost: x\r\nA: b\r\n\r\n" for line in (b"GET /1 HTTP/1.1", b"GET /2 HTTP/1.1", *lines)
    )


def test_of_heads_that_differ_in_their_request_line_no_other_line_is_read_again() -> None:
    found, _ = feed(*(b"GET /%d?%d HTTP/1.1\r\nHost: x\r\n\r\n" % (number, number) for number in range(4)))
    assert [(b"/%d" % number, b"%d" % number) for number in range(4)] == [(each.path, each.query) for each in found]
    assert [False, True, True] == [one.headers is before.headers for before, one in pairwise(found)]


def test_of_heads_that_differ_in_one_value_no_other_line_is_read_again() -> None:
    one = RequestParser("192.0.2.1")
    heads = [LIST.replace(b"Host: x", b"Host: x\r\nTraceParent: " + value) for value in (b"a", b"b", b" c\t", b"")]
    for head in heads[:2]:
        take(one, head)
    lines = grammar.field.cache_info()
    for head in heads[2:]:
        take(one, head)
    assert lines == grammar.field.cache_info()
    take(one, heads[0] + heads[1])
    assert lines != grammar.field.cache_info()  # two heads together are read line by line


@pytest.mark.parametrize(("unlike", "compares"), [(7, True), (8, False)])
def test_heads_are_not_compared_after_eight_in_a_row_that_differ_in_several_lines(unlike: int, compares: bool) -> None:
    heads = [request(b"Host: x", b"A: %d" % number, b"B: %d" % number) for number in range(unlike)]
    found, _ = feed(*heads, LIST, LIST)
    assert compares is (found[-2].headers is found[-1].headers)


@pytest.mark.parametrize("before", [b"", b"\r\n", b"\r\n\r\n", GOOD, GOOD + b"\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_blank_lines_may_precede_a_request_and_a_lone_line_feed_is_malformed_at_once(before: bytes, size: int) -> None:
    begun = before.startswith(b"GET")
    for data, outcome in ((before + GOOD, (1 + begun, None)), (before + b"\n", (begun, BadRequest))):
        requests, refused = feed(*(data[place : place + size] for place in range(0, len(data), size)))
        assert outcome == (len(requests), refused)
