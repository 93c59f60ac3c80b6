"""What all connections together keep in memory, here and in the kernel, is bounded and is given back."""

import asyncio
import logging
import tracemalloc
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from petstore_server.server import scheduler
from petstore_server.server.messages import Request, Response
from petstore_server.server.parser import RequestParser
from petstore_server.server.writer import WRITE_MARK
from testing import process
from testing.public_server import GET, LIST, POST, connect, plain, serving, until, until_closed
from testing.subprocesses import PATIENCE, within

LARGE_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"x-%d: %s\r\n" % (each, b"a" * 1000) for each in range(55))


class Socket(NamedTuple):
    """The kernel's view of a connection: its state (4 is FIN-WAIT-1), and the bytes that are not acknowledged."""

    state: int
    unread: int


def sockets_of(port: int) -> list[Socket]:
    """The connections of a server on this port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    own = [line for line in lines if int(line[1].rpartition(":")[2], 16) == port and line[3] != "0A"]  # listening
    return [Socket(int(line[3], 16), int(line[4].partition(":")[0], 16)) for line in own]


def test_the_bounds_and_deadlines_are_the_documented_ones() -> None:
    assert (64 << 20, 128 << 20) == (scheduler.MAX_UNFINISHED, scheduler.MAX_UNREAD)
    assert (10, 60, 60, 2, 1) == scheduler.Deadlines()
    assert ("maximum", "unfinished", "unread") == scheduler.REFUSED


async def test_the_kernel_keeps_little_of_a_response_that_is_not_read() -> None:
    async with serving() as (_, port):
        clients = [await connect(port) for _ in range(10)]
        for _, writer in clients:
            writer.write(GET)
        await until(lambda: len([each for each in sockets_of(port) if each.unread > WRITE_MARK // 2]) == len(clients))
        assert [] == [each for each in sockets_of(port) if each.unread > 3 * WRITE_MARK]


async def short(request: Request) -> Response:
    """A response that the kernel takes whole, also from a client that does not read."""
    await request.receive_body()
    return plain(bytes(40_000))


@pytest.mark.parametrize("request_", [GET, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")])
async def test_a_response_that_only_the_kernel_still_has_is_waited_for_and_then_dropped(request_: bytes) -> None:
    async with serving(short, stall=5) as (server, port):
        reader, writer = await connect(port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is one of a socket
        writer.write(request_)
        await until(lambda: any(each.unread for each in sockets_of(port)))
        assert 1 == len(server.connections)
        await until(lambda: not server.connections)
        assert [] == [each for each in sockets_of(port) if each.unread]
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await until_closed(reader)) < 40_000


@pytest.mark.parametrize("closes", [False, True])
async def test_a_response_is_whole_if_its_client_reads_late(closes: bool) -> None:
    async with serving(short) as (_, port):
        reader, writer = await connect(port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        if closes:
            writer.write_eof()
        await until(lambda: any(each.unread for each in sockets_of(port)))
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert bytes(40_000) in await until_closed(reader)


async def test_of_too_many_unread_responses_those_that_nothing_was_read_of_are_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scheduler, "MAX_UNREAD", 4 * WRITE_MARK)
    async with serving() as (server, port):
        reader, writer = await connect(port)
        writer.write(GET)
        taken = len(await reader.readexactly(4096))
        silent = [await connect(port) for _ in range(10)]
        for _, other in silent:
            other.write(GET)
        check = server.check_progress
        monkeypatch.setattr(server, "check_progress", lambda: None)  # a busy machine reads nothing in some seconds
        while not server.refused["unread"] or len(server.connections) > 6:
            for _ in range(3):
                taken += len(await asyncio.wait_for(reader.readexactly(65536), PATIENCE))
                await asyncio.sleep(0.01)
            check()
        while taken < LIST:
            taken += len(await asyncio.wait_for(reader.read(1 << 20), PATIENCE))
        assert 1 == len([each for each in caplog.records if each.getMessage() == "connections refused"])


async def test_of_too_many_incomplete_requests_the_oldest_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scheduler, "MAX_UNFINISHED", 10 * len(LARGE_HEAD))
    with caplog.at_level(logging.WARNING):
        async with serving() as (server, port):
            known = await connect(port)
            known[1].write(POST + b"hello")
            await known[0].readuntil(b"\r\n\r\n5")
            silent = [await connect(port) for _ in range(45)]
            for _, writer in silent[:5]:
                writer.write(LARGE_HEAD)
            await asyncio.sleep(0.5)  # in which `known` waits longer, but for nothing
            known[1].write(POST + b"he")
            with monkeypatch.context() as patch:
                patch.setattr(server, "check_progress", lambda: None)  # a burst does not wait for the next second
                for _, writer in silent[5:]:
                    writer.write(LARGE_HEAD)
                    await writer.drain()
                await until(lambda: server.refused["unfinished"] >= 30)
            for reader, _ in silent[:5]:
                assert (await until_closed(reader)).startswith(b"HTTP/1.1 503 ")
            known[1].write(b"llo")
            await known[0].readuntil(b"\r\n\r\n5")
    logged = [each for each in caplog.records if each.getMessage() == "connections refused"]
    assert ["unfinished"] == [each.__dict__["reason"] for each in logged]


@pytest.mark.parametrize("end", [b"\r\n", b"content-length: 3\r\n\r\nabc"])
def test_a_connection_keeps_nothing_of_a_request_that_is_complete(end: bytes) -> None:
    data = LARGE_HEAD + end
    tracemalloc.start()
    try:
        parsers = [RequestParser(None) for _ in range(20)]
        before = tracemalloc.get_traced_memory()[0]
        for parser in parsers:
            for place in range(0, len(data), 512):
                parser.feed(data[place : place + 512])
                parser.parse()
            assert parser.requests.popleft().complete
            assert 0 == parser.size
        assert tracemalloc.get_traced_memory()[0] - before < len(data)
    finally:
        tracemalloc.stop()


def wait_for_requests() -> None:
    """A busy machine does not read hundreds of them in the ten seconds that each has."""
    vars(scheduler)["Deadlines"] = partial(scheduler.Deadlines, request=PATIENCE)


def test_memory_of_incomplete_requests_is_given_back(tmp_path: Path) -> None:
    with process.serving_as(tmp_path / "store.db", [], {}, wait_for_requests) as server:
        with server.client() as client:
            assert 401 == client.get("/v1/store/orders").status_code  # the first request takes memory that is kept
        before = server.memory()
        opened = [server.connect() for _ in range(400)]
        for each in opened:
            each.sendall(b"GET / HTTP/1.1\r\nx: " + bytes(60_000).replace(b"\0", b"a"))
        within(PATIENCE, lambda: server.memory() > before + 20_000_000)
        with server.client() as client:
            assert 401 == client.get("/v1/store/orders").status_code
        assert server.memory() < before + 400 * 80 * 1024
        for each in opened[:-5]:  # what the others take lies behind what is free
            each.close()
        within(4, lambda: server.memory() < before + 10_000_000)
        for each in opened[-5:]:
            each.close()
