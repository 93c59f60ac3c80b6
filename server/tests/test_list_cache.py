"""The list as response bodies: ETags, compression, and how often the store is read."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from petstore_server.api.list_cache import JOINED_BYTES, EncodedList, ListCache, deflate
from petstore_server.domain.accounts import Plan
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import Order
from petstore_server.runtime.opening import opened_store
from petstore_server.store import Store
from petstore_server.store.engine import Engine
from petstore_server.store.listing import Listing, Mark, OrderList, Piece
from testing import wire
from testing.process import exchange
from testing.service import UNLIMITED, Service
from testing.stores import BY, SqlitePlaces, Stores
from testing.subprocesses import until
from testing.watched_engine import WatchedEngine, watched_listing


def source(*pieces: str, revision: int = 1) -> OrderList:
    """A list of pieces; each text is what follows a comma."""
    return OrderList(
        Mark("one", revision),
        tuple(range(len(pieces))),
        tuple(Piece(f",{text}".encode() if text else b"") for text in pieces),
    )


def text(encoded: EncodedList) -> bytes:
    return b"".join(encoded.plain.whole.chunks)


@asynccontextmanager
async def cached(stores: Stores) -> AsyncIterator[tuple[Store, ListCache, WatchedEngine]]:
    """A store, and the cache of a process that reads its list."""
    async with stores.opened() as store, watched_listing(stores.url) as (listing, engine):
        yield store, ListCache(listing), engine


async def put(store: Store, *ids: int) -> None:
    """Add orders."""
    await store.orders.import_batch([Order(order_id) for order_id in ids], "import:1", BY)


async def test_only_the_first_piece_and_those_that_changed_are_compressed_again_and_replaced_ones_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = EncodedList(source("1", "2", "3"))
    await before.gzip()
    starts, pieces = before.source.starts, before.source.pieces
    compressed: list[bytes] = []

    def recorded(data: bytes) -> tuple[bytes, int]:
        compressed.append(data)
        return deflate(data)

    monkeypatch.setattr("petstore_server.api.list_cache.deflate", recorded)
    unused = EncodedList(OrderList(Mark("one", 2), starts, (*pieces[:2], Piece(b",8"))), before)
    after = EncodedList(OrderList(Mark("one", 3), starts, (*pieces[:2], Piece(b",9"))), unused)
    assert pieces[1:2] == tuple(after._deflated)
    assert b"[1,2,9]" == gzip.decompress(b"".join((await after.gzip()).whole.chunks))
    assert [b"[1", b",9"] == compressed


async def test_a_body_is_one_chunk_up_to_a_megabyte_and_pieces_beyond() -> None:
    small, large = EncodedList(source("1", "2")), EncodedList(source("1" * JOINED_BYTES, "2"))
    assert 1 == len(small.plain.whole.chunks)
    assert [JOINED_BYTES + 1, 2, 1] == [len(chunk) for chunk in large.plain.whole.chunks]
    zipped = (await large.gzip()).whole
    assert text(large) == gzip.decompress(b"".join(zipped.chunks))
    assert zipped.length == sum(map(len, zipped.chunks))


async def test_gzip_is_made_once_for_concurrent_callers() -> None:
    encoded = EncodedList(source("1"))
    zipped = await asyncio.gather(*(encoded.gzip() for _ in range(10)))
    assert all(one is zipped[0] for one in zipped)


async def test_on_sqlite_a_current_list_is_returned_without_waiting(tmp_path: Path) -> None:
    async with cached(Stores(SqlitePlaces(tmp_path))) as (store, cache, _):
        await put(store, 1)
        held = await cache.current()
        call = cache.current()
        with pytest.raises(StopIteration) as returned:
            call.send(None)
        assert returned.value.value is held
        await put(store, 2)
        assert b'[{"id":1},{"id":2}]' == text(await cache.current())


async def of_turn(cache: ListCache, turn: object) -> EncodedList:
    """The list as a request of this turn gets it."""
    return cache.known(turn) or await cache.current(turn)


async def test_concurrent_callers_share_one_query_for_changes(each_backend: Stores) -> None:
    async with cached(each_backend) as (store, cache, engine):
        await put(store, 1)
        held = await cache.current()
        before = len(engine.statements)
        assert {held} == set(await asyncio.gather(*(cache.current() for _ in range(50))))
        assert before + (0 if each_backend.is_sqlite else 1) == len(engine.statements)


async def test_a_reading_that_began_before_a_change_does_not_serve_callers_after_it(each_backend: Stores) -> None:
    async with cached(each_backend) as (store, cache, engine):
        await put(store, 1)
        engine.gate.clear()
        early = asyncio.create_task(cache.current())
        await until(lambda: engine.readings == 1)
        await put(store, 2)
        late = [asyncio.create_task(cache.current()) for _ in range(20)]
        await asyncio.sleep(0.01)
        engine.gate.set()
        assert b'[{"id":1}]' == text(await early)
        assert {b'[{"id":1},{"id":2}]'} == {text(await one) for one in late}
        assert 2 == engine.readings


async def test_a_failed_reading_fails_its_callers_and_the_next_tries_again(file_store: Stores) -> None:
    async with cached(file_store) as (store, cache, engine):
        await put(store, 1)
        engine.faults.append(ServiceUnavailable("gone"))
        both = await asyncio.gather(cache.current(), cache.current(), return_exceptions=True)
        assert [ServiceUnavailable, ServiceUnavailable] == [type(one) for one in both]
        assert b'[{"id":1}]' == text(await cache.current())


async def test_a_caller_that_is_cancelled_does_not_end_the_reading(file_store: Stores) -> None:
    async with cached(file_store) as (store, cache, engine):
        await put(store, 1)
        engine.gate.clear()
        leaves, stays = asyncio.create_task(cache.current()), asyncio.create_task(cache.current())
        await until(lambda: engine.readings == 1)
        leaves.cancel()
        engine.gate.set()
        assert b'[{"id":1}]' == text(await stays)
        assert leaves.cancelled()


async def test_a_call_that_was_overtaken_does_not_serve_its_turn(each_backend: Stores) -> None:
    class Slow(Listing):
        """Returns a list late."""

        gate = asyncio.Event()

        async def current(self) -> OrderList:
            found = await super().current()
            await self.gate.wait()
            return found

    async with each_backend.opened() as store, watched_listing(each_backend.url) as (_, engine):
        listing = Slow(cast(Engine, engine))
        cache, turn = ListCache(listing), object()
        listing.gate.set()
        assert b"[]" == text(await cache.current())
        await put(store, 1)
        listing.gate.clear()
        slow = asyncio.create_task(cache.current(turn))
        await until(lambda: engine.readings == 2)
        await put(store, 2)
        newest = asyncio.create_task(listing.current())
        await until(lambda: engine.readings == 3)
        listing.gate.set()
        await newest
        assert b'[{"id":1}]' == text(await slow)
        assert b'[{"id":1},{"id":2}]' == text(await of_turn(cache, turn))


# Lists in one turn of the event loop share one look at the store, and none misses an acknowledged change

TARGET = "/v1/store/orders"


async def writer_key(service: Service) -> str:
    """A key that may do everything."""
    account = await service.account(Plan.ENTERPRISE, UNLIMITED)
    return await service.key(account, scopes=DEFAULT_SCOPES | {Scope.ORDERS_WRITE})


def request(key: str, method: str, target: str, *lines: str, body: str = "") -> bytes:
    return wire.head(method, target, f"Content-Length: {len(body)}", *lines, key=key) + body.encode()


def lists(raw: bytes) -> list[list[int]]:
    """The identifiers in each list among the responses on a connection."""
    bodies = [response.body for response in wire.responses(raw)]
    return [[order["id"] for order in json.loads(body)] for body in bodies if body.startswith(b"[")]


async def sent(service: Service, *payloads: bytes) -> list[bytes]:
    """Send each payload over another connection, all in one turn of the event loop; return the responses."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        address = ("127.0.0.1", service.transport.port)
        peers = [stack.enter_context(socket.create_connection(address)) for _ in payloads]
        await asyncio.sleep(0.05)  # the server accepts them
        for peer, payload in zip(peers, payloads, strict=True):
            peer.sendall(payload)  # without giving way to the server
        return [await loop.run_in_executor(None, exchange, peer, b"") for peer in peers]


@pytest.mark.usefixtures("each_deployment")
async def test_a_pipelined_list_shows_what_the_request_before_it_has_changed(service: Service) -> None:
    await service.orders(Order(7), Order(8))
    key = await writer_key(service)
    plain, last = request(key, "GET", TARGET), request(key, "GET", TARGET, "Connection: close")
    body = json.dumps({"petId": 1, "quantity": 1})
    place = request(key, "POST", "/v2/store/orders", "Content-Type: application/json", "Idempotency-Key: a", body=body)
    cancel = request(key, "DELETE", f"{TARGET}/7")
    await sent(service, last)
    received = await sent(service, plain + place + plain + cancel + last, *[plain + last] * 10)
    assert [[7, 8], [7, 8, 9], [7, 8, 9]] == lists(received[0])
    assert [200, 201, 200, 204, 200] == [response.status for response in wire.responses(received[0])]
    assert all(len(found) == 2 and found[0] in ([7, 8], [7, 8, 9]) for found in map(lists, received[1:]))
    assert [[[7, 8, 9]]] * 5 == [lists(one) for one in await sent(service, *[last] * 5)]


@pytest.mark.usefixtures("each_deployment")
async def test_a_change_by_another_program_shows_in_every_list_of_a_later_turn(service: Service) -> None:
    last = request(await writer_key(service), "GET", TARGET, "Connection: close")
    async with opened_store(service.settings.database_url) as other:
        for number in range(1, 6):
            await other.orders.import_batch([Order(number)], "test", service.actor)
            expected = list(range(1, number + 1))
            for _ in range(2):  # a list that is updated, then one that is found to be current
                assert [[expected]] * 3 == [lists(one) for one in await sent(service, last, last, last)]


async def test_lists_of_one_turn_look_at_a_file_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    current = Listing.current

    async def counted(self: Listing) -> OrderList:
        nonlocal looks
        looks += 1
        return await current(self)

    monkeypatch.setattr(Listing, "current", counted)
    await service.orders(Order(7))
    last = request(await writer_key(service), "GET", TARGET, "Connection: close")
    await sent(service, last)
    looks = 0
    assert [[[7]]] * 8 == [lists(one) for one in await sent(service, *[last] * 8)]
    assert 1 == looks
