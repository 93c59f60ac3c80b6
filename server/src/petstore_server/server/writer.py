"""Writes the responses of one connection, as fast as the client takes them."""

import asyncio
import fcntl
import select
import socket
import struct
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

WRITE_MARK = 64 * 1024
"""Bytes in the transport's buffer, and not sent yet in the kernel, above which nothing more is written."""

WRITE_BATCH = 512 * 1024
"""Bytes of a long body handed to the transport at once. Connections share the bytes of a list; none are copied."""

JOINED_BODY = 32 * 1024
"""Bytes up to which a body is copied behind its head: one buffer costs less than two. A page of 100 orders fits."""


class ResponseWriter:
    """Hands responses to a transport, one after another. `paused` is true while the transport's buffer is full.

    Short responses are held until `flush`. `on_held` is called with a writer that starts buffering.
    """

    __slots__ = ("_held", "_held_bytes", "_on_held", "_transport", "_unsent", "_written", "paused")

    def __init__(self, transport: asyncio.Transport, on_held: "Callable[[ResponseWriter], None]") -> None:
        transport.set_write_buffer_limits(high=WRITE_MARK)
        self._transport = transport
        self._on_held = on_held
        self._held: list[bytes] = []
        self._held_bytes = 0  # of bodies
        self._unsent: Iterator[bytes] | None = None  # the rest of the response being written
        self._written = 0  # bytes handed over
        self.paused = False

    def write(self, head: Sequence[bytes], chunks: Sequence[bytes], length: int) -> bool:
        """Write a response with a body of `length` bytes; return whether all of it has been handed over or is held.

        If not, the rest follows with `resume`.
        """
        if self._held_bytes + length > JOINED_BODY:
            self.flush()
        if chunks and length > JOINED_BODY:
            self._unsent = chain((b"".join(head),), chunks)
            return self._write_on()
        if not self._held:
            self._on_held(self)
        self._held += head
        self._held += chunks
        self._held_bytes += length
        return True

    def write_interim(self, response: bytes) -> None:
        """Write an interim response (RFC 9110 section 15.2) at once, behind what is held."""
        self._held.append(response)
        self.flush()

    def flush(self) -> None:
        """Hand over what is held."""
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._held_bytes = 0
            self._written += len(data)
            self._transport.write(data)

    def resume(self) -> bool:
        """Go on after the transport's buffer was full; return whether that completed a response."""
        self.paused = False
        return self._unsent is not None and self._write_on()

    def drop(self) -> None:
        """Forget what has not been handed over: the connection is lost."""
        self._held.clear()
        self._unsent = None

    def abort(self) -> None:
        """Close the connection at once, without what the client has not taken: the kernel would keep it for minutes."""
        self.drop()
        if self.progress()[1]:
            linger = struct.pack("ii", 1, 0)  # for no second: the connection is reset
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._transport.abort()

    def progress(self) -> tuple[int, int, int]:
        """How many bytes the client has taken, and how many wait for it: in all, and those of them in the kernel."""
        in_kernel = unacknowledged(self._transport)
        unread = self._transport.get_write_buffer_size() + in_kernel
        return self._written - unread, unread, in_kernel

    def _write_on(self) -> bool:
        """Hand over a long response batch by batch until the transport's buffer is full."""
        while self._unsent is not None:
            if self.paused:
                return False
            batch, size = [], 0
            for chunk in self._unsent:
                batch.append(chunk)
                size += len(chunk)
                if size >= WRITE_BATCH:
                    break
            else:
                self._unsent = None
            self._written += size
            self._transport.writelines(batch)
        return True


def has_ended(transport: asyncio.Transport) -> bool:
    """Whether the client sends nothing more, or is gone, even if not all that it sent was read (Linux, POLLRDHUP)."""
    poll = select.poll()
    try:
        poll.register(transport.get_extra_info("socket").fileno(), getattr(select, "POLLRDHUP", 0))
        return bool(poll.poll(0))
    except (OSError, ValueError):  # it is closed
        return True


def unacknowledged(transport: asyncio.Transport) -> int:
    """Bytes in the kernel that the other end has not acknowledged (Linux, SIOCOUTQ); 0 if that is not known."""
    try:
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # it is closed
        return 0
    return int.from_bytes(answer, sys.byteorder)
