"""Large lists: decoded while they arrive, and never silently incomplete."""

import gzip
import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from petstore_client import APITimeoutError, InvalidResponseError, Order
from petstore_client._stream import MAX_ORDER_BYTES, Inflater, OrdersDecoder
from petstore_client.testing import Answered, CutOff, FakePetstore, Slow
from testing.allocations import traced
from testing.client_variants import Connect, faulty

ORDERS = [Order(id=number, pet_id=number % 7, quantity=1) for number in range(200)]
BODY = msgspec.json.encode(ORDERS)
JSON = {"content-type": "application/json"}
AWKWARD = json.dumps(
    [
        {"id": 1, "note": 'a "quoted" },{ [ \\ and more \\'},
        {"id": 2, "lines": [{"sku": "x"}, {"sku": "},"}, {"nested": [{"deep": [{}, {}]}, {}]}]},
        {},
        {"petId": -(2**63), "quantity": 2**63 - 1, "id": 2**63 - 1},
        {"id": None, "shipDate": "2026-02-28T23:59:60.5Z"[:17] + "59.123456+02:00"},
        {"id": 5, "später": "ü✓😀", "complete": True},
    ],
    ensure_ascii=False,
)
AWKWARD_ORDERS = msgspec.json.decode(AWKWARD, type=list[Order])


def decoded(*pieces: bytes) -> list[Order]:
    decoder = OrdersDecoder()
    return [order for piece in pieces for order in decoder.feed(piece)] + decoder.finish()


def in_pieces(body: bytes, sizes: Iterator[int]) -> list[bytes]:
    pieces = []
    while body:
        size = next(sizes)
        pieces.append(body[:size])
        body = body[size:]
    return pieces


def random_sizes(seed: int, most: int) -> Iterator[int]:
    source = random.Random(seed)
    while True:
        yield source.randint(1, most)


def spaced(indent: int) -> bytes:
    """The awkward orders with white space wherever it may be."""
    return ("\n \t" + json.dumps(json.loads(AWKWARD), indent=indent, separators=(" ,", " : ")) + "\r\n ").encode()


@pytest.mark.parametrize("body", [BODY, AWKWARD.encode(), spaced(0), spaced(2), b"[]", b" [ ] ", b"[\n]\n"], ids=len)
def test_the_orders_do_not_depend_on_white_space_and_how_the_bytes_are_split(body: bytes) -> None:
    for most in (1, 2, 7, 60, 500):
        for seed in range(5):
            found = decoded(*in_pieces(body, random_sizes(seed, most)))
            assert msgspec.json.decode(body, type=list[Order]) == found


def test_orders_are_available_before_the_list_is_complete() -> None:
    decoder = OrdersDecoder()
    assert ORDERS[:3] == decoder.feed(msgspec.json.encode(ORDERS[:3])[:-1] + b",")


def test_a_body_cut_anywhere_is_truncated_and_never_yields_a_wrong_order() -> None:
    body = AWKWARD.encode()
    for length in range(len(body)):
        decoder = OrdersDecoder()
        orders = [order for piece in (body[: length // 2], body[length // 2 : length]) for order in decoder.feed(piece)]
        assert AWKWARD_ORDERS[: len(orders)] == orders
        with pytest.raises(InvalidResponseError) as caught:
            decoder.finish()
        assert caught.value.truncated


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":1}',
        b"<html>",
        b"[1,2]",
        b'[{"id":1},2,{"id":3}]',
        b'[{"id":1},]',
        b'[,{"id":1}]',
        b'[{"id":1},,{"id":2}]',
        b'[{"id":1}]]',
        b'[{"id":1}],[{"id":2}]',
        b'[{"id":1}] trailing]',
        b'[{"id":1} {"id":2}]',
        b'[{"id":"1"}]',
        b'[{"id":1,"shipDate":"2026-01-01T00:00:00"}]',
        b'[{"id":1},{"id":\xff}]',
        b"\xef\xbb\xbf[]",
    ],
)
def test_a_body_that_is_not_a_list_of_orders_is_rejected(body: bytes) -> None:
    with pytest.raises(InvalidResponseError):
        decoded(body)
    with pytest.raises(InvalidResponseError):
        decoded(*in_pieces(body, iter([1] * 99)))


def test_integers_of_all_64_bits_and_beyond_stay_exact() -> None:
    numbers = [2**53 + 1, -(2**63), 2**63 - 1, 2**64 - 1]
    assert numbers == [order.quantity for order in decoded(json.dumps([{"quantity": n} for n in numbers]).encode())]


@pytest.mark.parametrize(
    ("begin", "piece"),
    [(b'{"note":"', b"x" * 1000), (b'{"lines":[', b'{"sku":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},' * 1000)],
    ids=["text", "list"],
)
def test_an_endless_order_does_not_fill_the_memory(begin: bytes, piece: bytes) -> None:
    decoder = OrdersDecoder()
    decoder.feed(b'[{"id":1},' + begin)
    pieces = [piece] * (MAX_ORDER_BYTES // len(piece) + 10)
    with pytest.raises(InvalidResponseError):
        list(map(decoder.feed, pieces))


def test_memory_does_not_grow_with_the_list() -> None:
    piece = msgspec.json.encode(ORDERS)[1:-1] + b","
    decoder = OrdersDecoder()
    decoder.feed(b"[")
    with traced() as peak:
        for _ in range(300):
            assert 200 == len(decoder.feed(piece))
        assert peak() < 1_000_000


def test_gzip_is_decompressed_in_bounded_pieces() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    inflater = Inflater("gzip")
    with traced() as peak:
        total = sum(len(text) for text in inflater.feed(bomb))
        inflater.finish()
        assert peak() < 2_000_000
    assert 50_000_000 == total


def test_several_gzip_members_are_one_body() -> None:
    body = gzip.compress(b"[1,") + gzip.compress(b"") + gzip.compress(b"2]")
    for size in (1, 5, 10_000):
        inflater = Inflater("gzip")
        text = b"".join(b"".join(inflater.feed(piece)) for piece in in_pieces(body, iter([size] * 999)))
        assert b"[1,2]" == text
        inflater.finish()


@pytest.mark.parametrize("cut", [1, 4, 8, 9, 20])
def test_a_compressed_body_without_its_last_bytes_is_incomplete(connect: Connect, cut: int) -> None:
    fake = faulty([], Answered(200, gzip.compress(BODY)[:-cut], {**JSON, "content-encoding": "gzip"}))
    with connect(fake, max_retries=0) as petstore, pytest.raises(InvalidResponseError) as caught:
        petstore.list_orders()
    assert caught.value.truncated


def test_damaged_compression_is_rejected(connect: Connect) -> None:
    body = bytearray(gzip.compress(BODY))
    body[len(body) // 2] ^= 0xFF
    fake = faulty([], Answered(200, bytes(body), {**JSON, "content-encoding": "gzip"}))
    with connect(fake, max_retries=0) as petstore, pytest.raises(InvalidResponseError):
        list(petstore.iter_orders())


@pytest.mark.parametrize("status", [200, 201, 404, 409])
@pytest.mark.parametrize(
    ("encoding", "body"), [("br", b"x"), ("gzip", b"x"), ("gzip", gzip.compress(b"{}", mtime=0)[:-1])]
)
def test_compression_that_cannot_be_read_has_the_status_of_its_response(
    connect: Connect, status: int, encoding: str, body: bytes
) -> None:
    fake = FakePetstore(scopes=["orders:manage"])
    fake.then(Answered(status, body, {"content-type": "application/json", "content-encoding": encoding}))
    with connect(fake, max_retries=0) as petstore, pytest.raises(InvalidResponseError, match="compressed") as caught:
        petstore.v2.put_order(1)
    assert status == caught.value.status


def test_an_iteration_sends_nothing_before_it_starts_and_retries_nothing_after_the_first_order(
    connect: Connect,
) -> None:
    fake = faulty(ORDERS, CutOff(1000))
    with connect(fake) as petstore:
        got: list[Order] = []
        iteration = petstore.iter_orders()
        assert [] == fake.requests
        with pytest.raises(InvalidResponseError) as caught:
            got.extend(iteration)
    assert caught.value.truncated
    assert 0 < len(got) < len(ORDERS)
    assert ORDERS[: len(got)] == got
    assert 1 == len(fake.requests)


def test_a_list_that_stalls_after_the_first_order_is_a_timeout(connect: Connect) -> None:
    fake = faulty(ORDERS, Slow(pause=0.5, size=500), Slow(pause=31.0, size=500))
    with connect(fake, timeout=30.0, max_retries=0) as petstore:
        assert ORDERS == list(petstore.iter_orders())
        with pytest.raises(APITimeoutError):
            list(petstore.iter_orders())


def test_an_unchanged_list_is_not_sent_again(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake) as petstore:
        first = petstore.list_orders()
        first.clear()  # the list belongs to the caller
        assert ORDERS == petstore.list_orders()
        fake.orders[999] = Order(id=999)
        assert [*ORDERS, Order(id=999)] == petstore.list_orders()
        assert [*ORDERS, Order(id=999)] == petstore.list_orders()
    asked = [request.headers.get("if-none-match") for request in fake.requests]
    assert asked[0] is None
    assert asked[1] == asked[2] != asked[3]


def test_a_list_whose_etag_cannot_be_sent_back_is_sent_each_time(connect: Connect) -> None:
    headers: dict[str, Any] = {**JSON, "etag": b'"\xff"'}
    fake = faulty(ORDERS, Answered(200, BODY, headers))
    with connect(fake, max_retries=0) as petstore:
        assert ORDERS == petstore.list_orders() == petstore.list_orders()
    assert [None, None] == [request.headers.get("if-none-match") for request in fake.requests]


def test_without_conditional_the_list_is_sent_each_time(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake, conditional=False) as petstore:
        assert [ORDERS, ORDERS] == [petstore.list_orders(), petstore.list_orders()]
    assert [None, None] == [request.headers.get("if-none-match") for request in fake.requests]
