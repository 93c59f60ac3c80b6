"""The request parser: requests that it remembers are the same as those that it parses."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.server import remembered as known_requests
from petstore_server.server.errors import RequestError
from petstore_server.server.parser import RequestParser
from petstore_server.server.remembered import RememberedRequests

LIST = b"GET /v1/store/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n\r\n"
NAMES = (b"X-Request-Id", b"x-request-id")
MESSAGES = (
    LIST,
    LIST.replace(b"Bearer k", b"Bearer other"),
    LIST.replace(b"GET", b"HEAD"),
    LIST.replace(b"orders", b"orders?a=b&c"),
    b"\r\n" + LIST,
    LIST + b"\r\n",
    LIST.replace(b"1.1", b"1.0"),
    LIST.replace(b"Host: x", b"Host: x\r\nConnection: close"),
    LIST.replace(b"Host: x", b"Host: x\r\nUpgrade: h2c\r\nConnection: upgrade"),
    LIST.replace(b"Host: x", b"Host: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 2") + b"ab",
    LIST.replace(b"Host: x", b"Host: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\nTransfer-Encoding: chunked")
    + b"0\r\n\r\n",
    LIST.replace(b"GET", b"CONNECT"),
    LIST.replace(b"Host: x", b"Host: x y"),
    LIST.replace(b"Bearer k", b"Bearer pso_live_" + b"A" * 33),
    LIST.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue\r\nContent-Length: 2") + b"ab",
    LIST.replace(b"Host: x", b"Host: x\r\nContent-Length: 0"),
    LIST.replace(b"Host: x", b"Host: x\r\nTransfer-Encoding: chunked") + b"0\r\n\r\n",
    LIST.replace(b"Host: x", b"Host: x\r\nX-Filler: " + b"x" * 600),
    LIST.replace(b"GET", b"DELETE"),
    LIST.replace(b"GET /", b"GET x"),
    b"G",
    b"\x00",
)


class Forgetful(RememberedRequests):
    def add(self, data: bytes, request: object) -> None:
        pass


def parsed(pieces: list[bytes], remembered: RememberedRequests) -> list[object]:
    """All that the connection gets to know of these pieces."""
    known: list[object] = []
    one = RequestParser("192.0.2.1", remembered)
    for piece in pieces:
        try:
            one.feed(memoryview(bytearray(piece)))
        except RequestError as error:
            known.append((type(error), error.message))
            break
        finally:
            known.append((one.in_message, one.begun))
    known += [
        (request.head._replace(headers=request.headers), request.headers, request.peer, request.complete, request.body)
        for request in one.requests
    ]
    one.close()
    return known


IDENTIFIED = (
    *(
        LIST.replace(b"Host: x", b"Host: x\r\n%s: %s" % (name, value))
        for name in NAMES
        for value in (b"1", b"a b", b"2")
    ),
    LIST.replace(b"Host: x", b"X-Request-Id: 3\r\nHost: x\r\nX-Request-Id: 4"),
    LIST.replace(b"Host: x", b"x-Request-ID: 3\r\nHost: x\r\nX-Request-Id: 4"),
    LIST.replace(b"Host: x", b"X-REQUEST-ID: 5\r\nHost: x"),
    LIST.replace(b"Host: x", b"X-REQUEST-ID: 5\r\nHost: x\r\nX-Request-Id: 6"),
    LIST.replace(b"Host: x", b"Host: x\r\nX-Request-Id: 7\r\n 8"),
    LIST.replace(b"Host: x", b"Host: x\r\n 8"),
)
ID_LINE = b"\r\nX-Request-Id: 9"


def test_requests_with_another_identifier_are_the_same_as_parsed_ones() -> None:
    remembered = RememberedRequests()
    messages = (*MESSAGES, *IDENTIFIED)
    for message in messages:
        parsed([message], remembered)
    for message in messages:
        for place in range(min(len(message), 200) + 1):
            for line in (ID_LINE, ID_LINE + b"\r\n"):
                data = message[:place] + line + message[place:]
                assert parsed([data], Forgetful()) == parsed([data], remembered)


def test_an_identifier_of_its_own_costs_a_request_no_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = RememberedRequests()
    parsed([LIST.replace(b"Host: x", b"Host: x\r\nX-Request-Id: 1")], remembered)
    monkeypatch.setattr(RequestParser, "_parse", lambda self, data: pytest.fail("parsed again"))
    one = RequestParser("192.0.2.1", remembered)
    for data in (LIST.replace(b"Host: x", b"X-Request-Id: 2\r\nHost: x"), LIST):
        one.feed(memoryview(data))
    assert [b"2", None] == [request.headers.get(b"x-request-id") for request in one.requests]
    one.close()


@given(st.lists(st.sampled_from(MESSAGES), max_size=6), st.lists(st.integers(0, 600), max_size=4))
def test_remembered_requests_are_the_same_as_parsed_ones(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(messages)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    remembered = RememberedRequests()
    for pieces in (messages, [data[start:end] for start, end in pairwise(edges)]):
        expected = parsed(pieces, Forgetful())
        assert expected == parsed(pieces, remembered)
        assert expected == parsed(pieces, remembered)


def test_spaces_and_tabs_around_a_value_are_not_part_of_it() -> None:
    one = RequestParser("192.0.2.1", RememberedRequests())
    one.feed(memoryview(LIST.replace(b"Host: x", b"Host:\t x \t\r\nX-Two: \ta b\t")))
    assert {b"host": b"x", b"x-two": b"a b", b"authorization": b"Bearer k"} == one.requests[0].headers
    one.close()


def test_the_same_bytes_are_parsed_once_for_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = RememberedRequests()
    parsed([LIST], remembered)
    monkeypatch.setattr(RequestParser, "_parse", lambda self, data: pytest.fail("parsed again"))
    assert len(parsed([LIST, LIST], remembered)) == 4


def test_remembered_requests_are_bounded_and_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_requests, "MAX_REMEMBERED", 3)
    remembered = RememberedRequests()
    requests = [LIST.replace(b"orders", b"%d" % number) for number in range(5)]
    parsed(requests, remembered)
    assert [False, False, True, True, True] == [remembered.find(data, None) is not None for data in requests]


@pytest.mark.parametrize(
    "message",
    [
        LIST.replace(b"GET", b"DELETE"),
        LIST.replace(b"Host: x", b"Host: x\r\nConnection: close"),
        LIST.replace(b"Host: x", b"Host: x\r\nContent-Length: 2") + b"ab",
        LIST + LIST,
        LIST[:-2],
    ],
    ids=["an effect", "the last of its connection", "a body", "two requests", "a part of a request"],
)
def test_other_requests_are_not_remembered(message: bytes) -> None:
    remembered = RememberedRequests()
    parsed([message], remembered)
    assert remembered.find(message, None) is None
