"""Responses reach the transport whole and in order, whether they are short, long or interim, and few bytes are held."""

import asyncio
import socket
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.server.writer import JOINED_BODY, WRITE_BATCH, WRITE_MARK, ResponseWriter

SIZES = st.sampled_from([0, 1, 100, JOINED_BODY // 3, JOINED_BODY, JOINED_BODY + 1, 5 * JOINED_BODY])


with socket.socket() as CLOSED:
    pass


def recorded() -> tuple[ResponseWriter, list[bytes], list[ResponseWriter]]:
    """A writer, what it has written, of which the client has not taken seven bytes, and what holds responses."""
    writes: list[bytes] = []
    holding: list[ResponseWriter] = []
    transport = Mock(asyncio.Transport)
    transport.get_write_buffer_size.return_value = 7
    transport.get_extra_info.return_value = CLOSED
    transport.write.side_effect = writes.append
    transport.writelines.side_effect = lambda lines: writes.append(b"".join(lines))
    writer = ResponseWriter(transport, holding.append)
    transport.set_write_buffer_limits.assert_called_once_with(high=WRITE_MARK)
    return writer, writes, holding


@given(st.lists(st.one_of(SIZES, st.sampled_from(["interim", "flush"]))))
def test_what_is_sent_is_every_response_in_order(steps: list[int | str]) -> None:
    writer, writes, holding = recorded()
    expected = b""
    for number, step in enumerate(steps):
        if isinstance(step, int):
            head, body = (b"head %d " % number, b"\r\n"), (bytes([number % 256]) * (step // 2),) * 2
            assert writer.write(head, body, sum(map(len, body)))
            expected += b"".join((*head, *body))
        elif step == "interim":
            writer.write_interim(b"interim %d" % number)
            expected += b"interim %d" % number
        else:
            writer.flush()
        sent = b"".join(writes)
        assert expected.startswith(sent)
        assert len(expected) - len(sent) <= JOINED_BODY + 20 * len(steps)
        assert sent == expected or (isinstance(step, int) and holding)
    writer.flush()
    assert b"".join(writes) == expected


def test_short_responses_that_are_held_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petstore_server.server.writer.unacknowledged", lambda transport: 5)
    writer, writes, holding = recorded()
    for body in (b"one", b"two", b"three"):
        writer.write((b"head ",), (body,), len(body))
    assert ([], [writer]) == (writes, holding)
    writer.flush()
    assert ([b"head onehead twohead three"], (26 - 12, 12, 5)) == (writes, writer.progress())


def test_a_long_response_is_written_in_batches_while_the_client_takes_them() -> None:
    writer, writes, _ = recorded()
    writer.write((b"held",), (), 0)
    writer.paused = True
    assert not writer.write((b"head", b"\r\n"), [bytes(WRITE_BATCH // 2)] * 5, WRITE_BATCH * 5 // 2)
    assert [b"held"] == writes
    assert writer.resume()
    assert [4, 6 + WRITE_BATCH, WRITE_BATCH, WRITE_BATCH // 2] == [len(each) for each in writes]
    assert (len(b"".join(writes)) - 7, False, False) == (writer.progress()[0], writer.resume(), writer.paused)


def test_nothing_held_is_sent_after_the_connection_is_lost() -> None:
    writer, writes, _ = recorded()
    writer.paused = True
    writer.write((b"head ",), (b"body",), JOINED_BODY + 1)
    writer.write((b"head ",), (b"body",), 4)
    writer.drop()
    writer.flush()
    assert ([], False) == (writes, writer.resume())
