"""Responses reach the transport whole and in order, whether they are short, long or interim, and few bytes are held."""

import socket
from collections.abc import Iterable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.server.writer import JOINED_BODY, WRITE_BATCH, WRITE_MARK, ResponseWriter

SIZES = st.sampled_from([0, 1, 100, JOINED_BODY // 3, JOINED_BODY, JOINED_BODY + 1, 5 * JOINED_BODY])


class Recording:
    """A transport that keeps each write, of which the client has not taken seven bytes."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == WRITE_MARK

    def get_write_buffer_size(self) -> int:
        return 7

    def get_extra_info(self, name: str) -> socket.socket:
        with socket.socket() as closed:
            return closed

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        self.writes.append(b"".join(lines))

    @property
    def sent(self) -> bytes:
        return b"".join(self.writes)


def recorded() -> tuple[ResponseWriter, Recording, list[ResponseWriter]]:
    transport = Recording()
    holding: list[ResponseWriter] = []
    return ResponseWriter(cast(Any, transport), holding.append), transport, holding


@given(st.lists(st.one_of(SIZES, st.sampled_from(["interim", "flush"]))))
def test_what_is_sent_is_every_response_in_order(steps: list[int | str]) -> None:
    writer, transport, holding = recorded()
    expected = b""
    for number, step in enumerate(steps):
        if isinstance(step, int):
            head, body = (b"head %d " % number, b"\r\n"), (bytes([number % 256]) * (step // 2),) * 2
            assert writer.write(head, body, sum(map(len, body)))
            expected += b"".join((*head, *body))
        elif step == "interim":
            writer.write_interim(b"interim %d" % number)
            expected += b"interim %d" % number
            assert transport.sent == expected
        else:
            writer.flush()
            assert transport.sent == expected
        assert expected.startswith(transport.sent)
        assert len(expected) - len(transport.sent) <= JOINED_BODY + 20 * len(steps)
        assert transport.sent == expected or holding
    writer.flush()
    assert transport.sent == expected


def test_short_responses_that_are_held_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petstore_server.server.writer.unacknowledged", lambda transport: 5)
    writer, transport, holding = recorded()
    for body in (b"one", b"two", b"three"):
        writer.write((b"head ",), (body,), len(body))
    assert ([], [writer]) == (transport.writes, holding)
    writer.flush()
    assert ([b"head onehead twohead three"], (26 - 12, 12, 5)) == (transport.writes, writer.progress())


def test_a_long_response_is_written_in_batches_while_the_client_takes_them() -> None:
    writer, transport, _ = recorded()
    writer.write((b"held",), (), 0)
    writer.paused = True
    assert not writer.write((b"head", b"\r\n"), [bytes(WRITE_BATCH // 2)] * 5, WRITE_BATCH * 5 // 2)
    assert [b"held"] == transport.writes
    assert writer.resume()
    assert [4, 6 + WRITE_BATCH, WRITE_BATCH, WRITE_BATCH // 2] == [len(each) for each in transport.writes]
    assert (len(transport.sent) - 7, False, False) == (writer.progress()[0], writer.resume(), writer.paused)


def test_nothing_held_is_sent_after_the_connection_is_lost() -> None:
    writer, transport, _ = recorded()
    writer.paused = True
    writer.write((b"head ",), (b"body",), JOINED_BODY + 1)
    writer.write((b"head ",), (b"body",), 4)
    writer.drop()
    writer.flush()
    assert ([], False) == (transport.writes, writer.resume())
