"""Deadlines are counted from the last progress: a peer that continues is never cut off, one that stops is."""

import asyncio
import socket

import pytest
import uvloop

from petstore_server.server.connection import Connection
from petstore_server.server.messages import Disconnected, Request, Response
from testing.public_server import GET, LIST, POST, connect, plain, respond, serving, until_closed
from testing.subprocesses import PATIENCE, until
from testing.wire import reset


async def test_a_reader_that_keeps_taking_a_little_is_never_cut_off_also_if_it_has_begun_another_request() -> None:
    async with serving(request=2, stall=2, tick=0.25) as (_, port):
        reader, writer = await connect(port)
        writer.write(GET + POST)
        for _ in range(30):
            await reader.readexactly(4096)
            await asyncio.sleep(0.05)
        received = 30 * 4096
        async with asyncio.timeout(PATIENCE):
            while received < LIST:
                received += len(await reader.read(1 << 20))
            writer.write(b"hello")
            assert b"\r\n\r\n5" in await reader.readuntil(b"\r\n\r\n5")


async def test_a_request_that_takes_long_to_answer_is_not_cut_off() -> None:
    async def slow(request: Request) -> Response:
        await asyncio.sleep(0.5)
        return plain(b"done")

    async with serving(slow, request=1, idle=1, stall=1, tick=0.1) as (_, port):
        reader, writer = await connect(port)
        writer.write(GET)
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"done")


async def test_connections_beyond_the_maximum_get_503_and_the_others_are_served() -> None:
    async with serving(max_connections=3) as (server, port):
        kept = [await connect(port) for _ in range(3)]
        for reader, writer in kept:
            writer.write(POST + b"hello")
            await reader.readuntil(b"\r\n\r\n5")
        reader, writer = await connect(port)
        writer.write(GET)
        refused = await until_closed(reader)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in refused
        assert b"\r\nConnection: close\r\n" in refused
        assert b'"code":"service_unavailable"' in refused
        assert 1 == server.refused["maximum"]
        kept.pop()[1].close()
        writer.close()
        await until(lambda: len(server.connections) == 2)
        reader, writer = await connect(port)
        writer.write(POST + b"hello")
        await reader.readuntil(b"\r\n\r\n5")


async def test_stopping_answers_requests_that_are_on_their_way_and_says_that_the_connection_closes() -> None:
    async def quick(request: Request) -> Response:
        return plain(b"done")

    async with serving(quick, last_request=1.5, request=100, idle=100) as (server, port):
        idle, kept, begun = [await connect(port) for _ in range(3)]
        for reader, writer in (kept, begun):
            writer.write(GET)
            assert b"Connection: close" not in await reader.readuntil(b"done")
        begun[1].write(GET[:10])
        with socket.create_connection(("127.0.0.1", port)) as waiting:  # the server has not accepted it yet
            waiting.sendall(GET)
            stopping = asyncio.create_task(server.stop(10))
            await asyncio.sleep(0.05)
            kept[1].write(GET)
            assert 1 == (await until_closed(kept[0])).count(b"\r\nConnection: close\r\n")
            assert b"" == await until_closed(idle[0])
            await asyncio.sleep(0.3)  # longer than an idle connection is kept
            begun[1].write(GET[10:])
            assert 1 == (await until_closed(begun[0])).count(b"\r\nConnection: close\r\n")
            waiting.setblocking(False)
            found = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(waiting, 4096), PATIENCE)
            assert found.startswith(b"HTTP/1.1 200 ")
        await asyncio.wait_for(stopping, PATIENCE)


def test_stopping_answers_a_connection_that_was_accepted_in_the_same_round_of_the_event_loop() -> None:
    async def stop() -> bytes:
        async with serving() as (server, port):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(POST + b"hello")
                await asyncio.create_task(server.stop(PATIENCE))  # begins after the loop has looked for connections
                return client.recv(4096, socket.MSG_DONTWAIT)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the loop of the service
        assert runner.run(stop()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("is_gone", "patience", "outcome"),
    [(True, PATIENCE, "done"), (False, PATIENCE, "done"), (True, 0.1, "cut off"), (False, 0.1, "cut off")],
)
async def test_stopping_waits_for_a_request_and_ends_one_that_takes_too_long_also_if_its_client_is_gone(
    is_gone: bool, patience: float, outcome: str
) -> None:
    begun, outcomes = asyncio.Event(), list[str]()

    async def commit(_: Request) -> Response:
        begun.set()
        outcomes.append("cut off")
        await asyncio.sleep(0.5 if outcome == "done" else PATIENCE)
        outcomes[:] = ["done"]
        return plain(b"")

    async with serving(commit, last_request=0.1) as (server, port):
        reader, writer = await connect(port)
        writer.write(GET if is_gone else GET + GET)
        await begun.wait()
        if is_gone:
            reset(writer)
            await until(lambda: not server.connections)
        await server.stop(patience)
        assert ([outcome], set()) == (outcomes, server._tasks)
        if not is_gone:
            last = (await until_closed(reader)).count(b"\r\nConnection: close\r\n")
            assert (outcome == "done") == last
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize(("waits", "gone"), [(False, False), (True, False), (True, True)])
async def test_a_defect_is_logged_after_its_connection_was_cut_off(
    waits: bool, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logging may fail or take long, and the client must not wait for it."""
    asked, may_fail, cut_before = asyncio.Event(), asyncio.Event(), list[bool]()

    async def failing(request: Request) -> Response:
        asked.set()
        if waits:
            await may_fail.wait()
        raise RuntimeError

    async with serving(failing) as (server, port):
        reader, writer = await connect(port)
        await until(lambda: len(server.connections) == 1)
        [connection] = server.connections
        assert isinstance(connection, Connection)
        monkeypatch.setattr(server, "report", lambda _: cut_before.append(connection._transport.is_closing()))
        writer.write(GET)
        await asked.wait()
        if gone:
            reset(writer)
            await until(lambda: not server.connections)
        may_fail.set()
        await until(lambda: bool(cut_before))
        assert [True] == cut_before
        assert gone or b"" == await until_closed(reader)


LONG = POST.replace(b"5", b"60000")
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n"
UNFINISHED = (b"GET / HTTP/1.1\r\nX: ", LONG, LONG + b"hel", CHUNKED)


@pytest.mark.parametrize(
    ("name", "sent", "wait", "more"),
    [
        ("idle", b"", "idle", b"\r\n"),  # empty lines before a request are not a request (RFC 9112 section 2.2)
        ("stall", GET, "reader", b""),
        ("last_bytes", b"\0", "last bytes", b"x"),
        *[("request", begun, "request", b"x") for begun in UNFINISHED],
    ],
)
async def test_a_deadline_ends_a_wait_after_exactly_its_seconds(name: str, sent: bytes, wait: str, more: bytes) -> None:
    async with serving(respond, tick=PATIENCE, **{name: 4}) as (server, port):
        _, writer = await connect(port)
        writer.write(sent)
        await until(lambda: len(server.connections) == 1)
        [connection] = server.connections
        assert isinstance(connection, Connection)
        await until(lambda: connection._waiting(connection._writer.progress()[1])[0][0] == wait)
        if sent == GET:
            await asyncio.sleep(0.5)  # until the kernel takes no more
        connection.check_progress()  # the clock of this test is how often it asks
        for _ in range(3):
            writer.write(more)  # which is not what is waited for
            await asyncio.sleep(0.01)
            taken, in_kernel = connection.check_progress()
            assert (0, sent == GET) == (taken, in_kernel > 0)
            assert not connection._transport.is_closing()
        assert (0, 0) == connection.check_progress()
        assert connection._transport.is_closing()


async def test_a_client_that_is_gone_ends_the_wait_for_its_body() -> None:
    outcomes: list[str] = []

    async def wait_for_body(request: Request) -> Response | None:
        try:
            await request.receive_body()
        except Disconnected:
            outcomes.append("disconnected")
        return None

    async with serving(wait_for_body) as (server, port):
        _, writer = await connect(port)
        writer.write(POST + b"ab")
        await until(lambda: len(server._tasks) == 1)
        reset(writer)
        await until(lambda: not server._tasks)
    assert ["disconnected"] == outcomes


async def test_a_response_without_the_expected_body_is_the_last_of_its_connection() -> None:
    async def refuse(_: Request) -> Response:
        return plain(b"no")

    async with serving(refuse) as (_, port):
        reader, writer = await connect(port)
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert b"Connection: close" in await reader.readuntil(b"\r\n\r\n")
        reader, writer = await connect(port)  # without Expect, the body follows, and then the next request
        writer.write(POST + b"12345" + POST + b"12345")
        assert 2 == (await reader.readuntil(b"no") + await reader.readuntil(b"no")).count(b"HTTP/1.1 200 OK")


async def test_of_far_too_many_connections_the_last_are_cut_off() -> None:
    async with serving(max_connections=1, last_bytes=PATIENCE) as (server, port):
        opened = []
        for number in range(1, 1 + 64 + 2):
            opened.append(await connect(port))
            await until(lambda count=number: server.refused["maximum"] == max(0, count - 1))  # type: ignore[misc]
        assert b"HTTP/1.1 503 " in await opened[64][0].readuntil(b"\r\n")
        assert b"" == await until_closed(opened[65][0])
