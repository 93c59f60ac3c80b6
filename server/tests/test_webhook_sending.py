"""Sending a message: names, addresses, certificates, proxies, and what comes back (D24)."""

import asyncio
import errno
import ipaddress
import socket
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import httpcore2
import pytest

from petstore_server.domain.webhooks import Attempt, SigningSecrets, Webhook
from petstore_server.webhooks import sending
from petstore_server.webhooks.addresses import Addresses
from petstore_server.webhooks.sending import Exchange, Sender, _Stream
from testing.clock import START, Clock
from testing.subprocesses import free_port
from testing.webhook_messages import SECRET
from testing.webhooks import LOOPBACK, Receiver, endless, failure, head, named, reply, server_tls, write

BODY = b'{"type":"ping"}'


async def send(url: str, networks: Sequence[Any] = LOOPBACK, proxy: str | None = None) -> Attempt:
    """Send a message to a URL; return the attempt."""
    return (await exchange(url, networks, proxy)).attempt


async def exchange(url: str, networks: Sequence[Any] = LOOPBACK, proxy: str | None = None) -> Exchange:
    sender = Sender(SigningSecrets(SECRET), Addresses(networks), proxy, Clock())
    return await sender.send(Webhook("wh_one", 1, "zoo", url, START), "msg_one", BODY)


@failure("does not resolve the name")
async def test_a_name_that_is_not_resolved_is_looked_up_again_by_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = named(monkeypatch, OSError(-3, "Temporary failure in name resolution"), ["127.0.0.1"])
    async with Receiver() as receiver:
        url = f"http://shop.example:{receiver.port}/"
        attempt = await send(url)
        assert (None, True) == (attempt.status, attempt.excerpt.endswith("its name cannot be resolved"))
        assert 204 == (await send(url)).status
    assert (2, f"shop.example:{receiver.port}") == (len(names.asked), receiver.received[0].headers["host"])


@failure("resolves the name to another address at the second look-up")
async def test_the_address_that_was_checked_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    names = named(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
    async with Receiver() as receiver:
        attempt = await send(f"http://shop.example:{receiver.port}/")
    assert (204, ["shop.example"]) == (attempt.status, names.asked)


@failure("resolves the name to a public and a private address")
@pytest.mark.parametrize("found", [["127.0.0.1", "8.8.8.8"], ["8.8.8.8", "127.0.0.1"]])
async def test_nothing_is_sent_to_a_name_of_which_one_address_is_not_public(
    found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, found)
    async with Receiver() as receiver:
        attempt = await send(f"https://shop.example:{receiver.port}/", networks=())
    reason = "not sent: the URL is refused, because its name has an address that is not public"
    assert (None, reason, 0) == (attempt.status, attempt.excerpt, receiver.connections)


async def test_an_address_that_does_not_respond_is_followed_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, ["127.0.0.2", "127.0.0.3", "127.0.0.1"])  # the first one refuses, the second one is silent
    monkeypatch.setattr(sending, "ATTEMPT_SECONDS", 4.0)
    async with Receiver() as receiver:
        with socket.socket() as silent, socket.socket() as filling:
            silent.bind(("127.0.0.3", receiver.port))
            silent.listen(0)
            filling.connect(silent.getsockname())
            assert 204 == (await send(f"http://shop.example:{receiver.port}/")).status


@failure("leads to a server with another certificate")
async def test_a_certificate_has_to_be_for_the_name_and_by_a_trusted_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, ["127.0.0.1"])
    tls, certificate = server_tls(tmp_path, "DNS:shop.example")
    async with Receiver(tls=tls) as receiver:
        url = f"https://shop.example:{receiver.port}/"
        attempt = await send(url)
        assert (None, 0, True) == (attempt.status, len(receiver.received), "self-signed" in attempt.excerpt)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert 204 == (await send(url)).status == (await send(url.replace("example:", "example.:"))).status
        attempt = await send(receiver.url)
        assert (None, 2, True) == (attempt.status, len(receiver.received), "127.0.0.1" in attempt.excerpt)


async def test_a_fault_of_this_machine_shows_the_owner_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = OSError(errno.EMFILE, "Too many open files", "/opt/petstore/module.py")
    monkeypatch.setattr(httpcore2, "AnyIOBackend", Mock(side_effect=fault))
    assert "no response: Too many open files" == (await send("http://127.0.0.1:9/")).excerpt


async def test_a_redirect_to_another_server_is_not_followed() -> None:
    async with Receiver() as other, Receiver(reply(302, f"Location: {other.url}")) as receiver:
        assert 302 == (await send(receiver.url)).status
    assert 0 == other.connections


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.upper(), f"http://127.0.0.1:{proxy.port}")
        assert 204 == (await send(receiver.url)).status
    assert 0 == proxy.connections


async def test_a_proxy_that_the_operator_names_looks_the_names_up() -> None:
    async with Receiver() as proxy:
        url = f"http://127.9.9.9:{free_port()}/hook?key=1"
        assert 204 == (await send(url, proxy=f"http://127.0.0.1:{proxy.port}")).status
        attempt = await send("https://[::1]/", proxy=f"http://127.0.0.1:{proxy.port}")
    assert [url] == [received.target for received in proxy.received]
    assert attempt.excerpt.endswith("because its address is not public")


async def test_messages_over_tls_go_through_a_tunnel_of_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, certificate = server_tls(tmp_path, "DNS:shop.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    asked: list[str] = []
    ended = asyncio.Event()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        other_reader, other = await asyncio.open_connection("127.0.0.1", receiver.port)
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(pump(reader, other), pump(other_reader, writer))
        ended.set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while part := await reader.read(1_000):
                writer.write(part)
            writer.close()
            await writer.wait_closed()

    async with Receiver(tls=tls) as receiver, await asyncio.start_server(tunnel, "127.0.0.1", 0) as proxy:
        url = f"http://shop:%C3%A4%40b@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        attempt = await send(f"https://shop.example:{receiver.port}/hook", proxy=url)
        await ended.wait()
    assert (204, "/hook") == (attempt.status, receiver.received[0].target)
    [request] = asked
    assert request.startswith(f"CONNECT shop.example:{receiver.port} HTTP/1.1\r\n")
    assert f"proxy-authorization: basic {b64encode('shop:ä@b'.encode()).decode()}".lower() in request.lower()


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://[fd00::1]/hook", "POST http://[fd00::1]:80/hook HTTP/1.1"),
        ("https://[fd00::1]/hook", "CONNECT [fd00::1]:443 HTTP/1.1"),
    ],
)
async def test_a_proxy_is_given_an_ipv6_address_in_brackets(url: str, line: str) -> None:
    asked: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode().strip())
        writer.write(head(502, "Content-Length: 0"))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        await send(url, [ipaddress.ip_network("fd00::/8")], f"http://127.0.0.1:{port}")
    assert [line] == asked


async def test_a_message_has_the_headers_of_the_specification_and_its_length() -> None:
    async with Receiver() as receiver:
        await send(receiver.url + "?key=1")
    [received] = receiver.received
    assert received.headers.keys() == {
        *("host", "content-type", "content-length", "accept-encoding", "user-agent"),
        *("webhook-id", "webhook-timestamp", "webhook-signature"),
    }
    assert ("/hook?key=1", BODY, "msg_one") == (received.target, received.body, received.id)
    assert (str(int(START)), "application/json") == (
        received.headers["webhook-timestamp"],
        received.headers["content-type"],
    )
    assert received.is_signed(SigningSecrets(SECRET).shown(Webhook("wh_one", 1, "zoo", receiver.url, START)))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        (f"{'9' * 40}", 999_999_999.0),
        (formatdate(START + 60, usegmt=True), 59.75),
        (datetime.fromtimestamp(START + 60, UTC).strftime("%A, %d-%b-%y %H:%M:%S GMT"), 59.75),
        (datetime.fromtimestamp(START + 60, UTC).strftime("%a %b %d %H:%M:%S %Y"), 59.75),
        (formatdate(START - 60, usegmt=True), 0.0),
        *((text, None) for text in ("", "-1", "1.5", "soon", "٣", "Mon, 99 Foo 2026 25:00:00 GMT", "1 2", "²")),
    ],
)
async def test_retry_after_has_seconds_or_a_date_of_any_form(
    text: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    response = head(503, "Content-Length: 0", "Retry-After: @").replace(b"@", text.encode())
    async with Receiver(write(response)) as receiver:
        assert seconds == (await exchange(receiver.url)).retry_after


@pytest.mark.parametrize(
    ("body", "excerpt"),
    [(b"caf\xc3\xa9", "café"), (b"\xff\xfe", "\ufffd\ufffd"), ("€".encode() * 500, "€" * 200), (b"", "")],
)
async def test_the_excerpt_is_the_beginning_of_the_text(body: bytes, excerpt: str) -> None:
    async with Receiver(reply(500, body=body)) as receiver:
        assert excerpt == (await send(receiver.url)).excerpt


@pytest.mark.parametrize("body", [b"a\0b", b"a\x1b[31mb", b"a\r\nb", "a\u202eb".encode(), b"pso_live_" + b"a" * 33])
async def test_the_excerpt_has_neither_control_characters_nor_keys(body: bytes) -> None:
    async with Receiver(reply(500, body=body)) as receiver:
        excerpt = (await send(receiver.url)).excerpt
    assert excerpt.replace("\n", "").isprintable()
    assert "a" * 33 not in excerpt


async def test_a_response_is_read_in_small_parts() -> None:
    """A hostile receiver sends thousands of chunks or interim responses: others need the event loop too."""
    connection = AsyncMock(spec=httpcore2.AsyncNetworkStream)
    connection.read.return_value = b"a"
    assert b"a" == await _Stream(connection).read(1_000_000)
    connection.read.assert_awaited_once_with(4096)


async def test_a_response_of_many_parts_ends_at_the_limit() -> None:
    interim = Receiver(endless(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000))
    chunked = head(200, "Transfer-Encoding: chunked")
    async with interim as receiver, Receiver(write(chunked, then=endless(b"1\r\nx\r\n" * 9_000))) as tiny:
        assert "no response: the response has more than 65536 bytes" == (await send(receiver.url)).excerpt
        attempt = await send(tiny.url)
        assert (200, "x" * 200) == (attempt.status, attempt.excerpt)
