"""The admin port bounds its connections: silent ones cannot take the descriptors of the public port."""

import asyncio
import socket
from pathlib import Path

import httpx2
import pytest

from petstore_server.runtime import servers
from petstore_server.runtime.servers import MAX_ADMIN_CONNECTIONS, AdminServer
from testing.process import new_key, serving
from testing.subprocesses import PATIENCE, within


def test_silent_connections_are_bounded_and_both_ports_respond(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store)
    with serving(store) as server, server.client(key) as client:
        address = ("127.0.0.1", int(server.admin.rpartition(":")[2]))
        descriptors = Path(f"/proc/{server.process.pid}/fd")
        before = len(list(descriptors.iterdir()))
        silent = [socket.create_connection(address, timeout=PATIENCE) for _ in range(300)]
        for each in silent[::2]:
            each.sendall(b"GET /readyz HTTP/1.1\r\nHost: ")
        try:
            within(10, lambda: len(list(descriptors.iterdir())) <= before + MAX_ADMIN_CONNECTIONS + 10)
            assert 200 == httpx2.get(f"{server.admin}/readyz", timeout=PATIENCE).status_code
            assert 200 == client.get("/v1/store/orders").status_code
            assert 1 == server.log.read_text().count('"event":"admin connections closed"')
        finally:
            for each in silent:
                each.close()


@pytest.mark.anyio
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a", b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT"])
async def test_a_head_that_is_not_complete_in_time_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(servers, "_ADMIN_HEAD_SECONDS", 0.3)

    async def respond(scope: object, receive: object, send: object) -> None:
        await asyncio.sleep(0.6)  # a response may take longer than a head
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})  # type: ignore[operator]
        await send({"type": "http.response.body"})  # type: ignore[operator]

    server = AdminServer(respond)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        await server.wait_until_started()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            try:
                received = await reader.read()
            except ConnectionResetError:
                received = b""
        assert sent.endswith(b"HT") == received.startswith(b"HTTP/1.1 200")
        writer.close()
        server.should_exit = True
        await task
