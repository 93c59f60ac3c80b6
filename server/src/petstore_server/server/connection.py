"""One client connection: reads requests, has them answered one after another, and writes the responses.

Responses are in the order of the requests because a request is answered only when the writer has the response before
it. Until then the connection parses nothing more, and reads at most one buffer ahead.
"""

import asyncio
from asyncio import Task
from contextlib import suppress
from http import HTTPStatus
from typing import cast

from petstore_server.server.eager import run_eagerly
from petstore_server.server.messages import Answer, Request, RequestError, TooManyConnections
from petstore_server.server.parser import RequestParser
from petstore_server.server.scheduler import ConnectionScheduler
from petstore_server.server.writer import ResponseWriter, has_ended

REQUESTS_PER_TURN = 16
"""Pipelined requests answered before other connections get their turn."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_END = b"\r\n"
_END_CLOSE = b"Connection: close\r\n\r\n"
_END_KEEP_ALIVE = b"Connection: keep-alive\r\n\r\n"  # for HTTP/1.0, where closing is the default
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection."""

    def __init__(self, server: ConnectionScheduler) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._writer: ResponseWriter
        self._parser: RequestParser
        self._input_ended = False  # no request will follow those parsed
        self._half_closed = False  # by the client: nothing more will be received
        self._client_ended = False  # the client sends nothing more, or is gone; what it sent may be unread
        self._current: Request | None = None  # the request being answered
        self._keep_alive = True
        self._reading_paused = False
        self._ended = False  # nothing more is answered
        self._wait: tuple[str, object] = ("", None)
        self._seconds: int  # for which it has been waiting for the same thing
        self._taken = 0  # bytes of responses, by the last check
        self.scheduled = False

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writer = ResponseWriter(self._transport, self._server.hold)
        peer = transport.get_extra_info("peername")  # of a Unix socket, it is not a pair
        self._parser = RequestParser(peer[0] if isinstance(peer, tuple) else None, self._server.body_limits)
        self._server.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._writer.drop()
        if self._current is not None:
            self._current.lose()
            self._current.end_client()
        self._parser.close()
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer  # shared: what it holds is parsed or copied before another connection reads

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended or self._input_ended:
            return
        parser = self._parser
        parser.feed(self._server.buffer[:nbytes].tobytes())
        self._parse()
        if not (parser.starved or self._reading_paused):
            self._reading_paused = True
            self._transport.pause_reading()
        if self._current is None:
            self._schedule()
        if not parser.requests:  # what has arrived is part of a request
            self._server.received(nbytes)

    def eof_received(self) -> bool:
        """Keep the connection open for writing (True): a client may close its half and still read its responses."""
        if self._ended and not self._writer.progress()[1]:
            return False
        self._input_ended = self._half_closed = self._client_ended = True
        if self._parser.incoming is not None:
            self._parser.incoming.lose()
        if self._current is not None:
            self._current.end_client()
        self._schedule()
        return True

    def pause_writing(self) -> None:
        self._writer.paused = True

    def resume_writing(self) -> None:
        if self._writer.resume():
            self._finish()
        if not self._writer.paused:
            self._schedule()

    # Called by the server

    def advance(self) -> None:
        """Answer requests one after another until there is something to wait for."""
        self.scheduled = False
        turn: object | None = self._server.turn
        parser = self._parser
        for _ in range(REQUESTS_PER_TURN):
            if not parser.starved:
                self._parse()
            if not parser.requests or self._ended or self._current is not None or self._writer.paused:
                if self._input_ended or self._reading_paused or self._server.closing:
                    self._read_on_or_end()
                return
            self._answer(parser.requests.popleft(), turn)
            turn = None  # a later request sees what an earlier one has changed
        self._schedule()

    def check_progress(self) -> tuple[int, int]:
        """Called once a second: end the connection if it has been waiting for the same thing for too long.

        Return how many bytes of responses the client has taken since the last call, and how many the kernel has for it.
        """
        if self._reading_paused and self._current is not None and has_ended(self._transport):
            self._client_ended = True
            self._current.end_client()
        taken, unread, in_kernel = self._writer.progress()
        lately, self._taken = taken - self._taken, taken
        wait, limit = self._waiting(unread)
        self._seconds = self._seconds + 1 if wait == self._wait else 0
        self._wait = wait
        if limit is not None and self._seconds >= limit:
            if wait[0] == "idle":
                self._transport.close()
            else:
                self.cut()
                in_kernel = 0
        return lately, in_kernel

    def unfinished(self) -> tuple[tuple[int, int], int]:
        """A rank for `refuse`, and the bytes that the incomplete request and what is not parsed yet take in memory.

        The request that is incomplete for the longest ranks first, then the one whose connection has had the fewest.
        """
        begun = self._parser.begun
        seconds = self._seconds if self._wait == ("request", begun) else -1  # it began after the last check
        return (-seconds, begun), self._parser.size

    def refuse(self) -> None:
        """Refuse the request that is incomplete, for lack of memory, and forget it."""
        self._refuse(TooManyConnections())
        if self._current is None:
            self._schedule()

    def cut(self) -> None:
        """End the connection at once: a response that was not sent completely must not look complete."""
        self._writer.abort()

    # Reading

    def _parse(self) -> None:
        """Parse what has been read until a request waits to be answered."""
        parser = self._parser
        while not (parser.starved or parser.requests or self._writer.paused) and (
            self._current is None or self._current is parser.incoming
        ):
            try:
                parser.parse()
            except RequestError as failure:
                self._refuse(failure)

    def _schedule(self) -> None:
        """Advance in one of the next turns, as the next request's flow gets them."""
        self._server.schedule(self, self._parser.requests[0] if self._parser.requests else None)

    def _refuse(self, failure: RequestError) -> None:
        """Parse nothing more; the last response is `failure`."""
        self._input_ended = True
        self._parser.refuse(failure, self._current)

    def _read_on_or_end(self) -> None:
        """With nothing to do now: read on, or end the connection if no request will follow."""
        if self._ended:
            return
        busy = self._current is not None or self._writer.paused or self._parser.requests
        idle_too_long = self._server.closing and not self._parser.in_message
        if busy or not (self._input_ended or idle_too_long):
            if self._reading_paused and self._parser.starved:
                self._reading_paused = False
                self._transport.resume_reading()
            return
        self._end()

    # Answering

    def _answer(self, request: Request, turn: object | None) -> None:
        self._current = request
        request.turn = turn
        request.client_ended = self._input_ended or self._client_ended
        if request.awaits_continue:
            request.invite = lambda: self._writer.write_interim(_CONTINUE)
        outcome = run_eagerly(self._server.respond(request), self._answer_late)
        if isinstance(outcome, Task):
            self._server.started(outcome)
        else:
            self._respond(request, outcome)

    def _answer_late(self, outcome: Answer | Exception | None) -> None:
        if isinstance(outcome, Exception):
            if not self._ended:
                self.cut()
            self._server.report(outcome)
            return
        if self._ended or self._current is None:
            return
        self._server.update_date()
        self._respond(self._current, outcome)
        if self._parser.requests or not self._parser.starved:
            self._schedule()
        elif not self.scheduled:
            self._read_on_or_end()

    def _respond(self, request: Request, answer: Answer | None) -> None:
        """Write the response; None if the rest of the request will not arrive."""
        if answer is None:
            self._current = None
            return
        self._keep_alive = request.keep_alive and not self._server.draining
        if not request.complete:
            if request.lost:
                self._parser.requests.clear()  # a request gets one response, so not a refusal as well
            # Without a 100 response, the client may send the body or not, so what follows is ambiguous.
            self._keep_alive &= not (request.awaits_continue or request.lost)
        end = (_END_KEEP_ALIVE if request.http_1_0 else _END) if self._keep_alive else _END_CLOSE
        response, more = answer
        head = (_STATUS_LINES[response.status], self._server.date_line, response.headers, more, end)
        if self._writer.write(head, () if request.method == "HEAD" else response.chunks, response.length):
            self._finish()

    # Writing

    def _finish(self) -> None:
        """The writer has the whole response, or has handed it over."""
        self._current = None
        if not self._keep_alive:
            self._end()

    def _end(self) -> None:
        """Close the connection behind what has been written.

        Where the client may still be sending, only our half is closed at first: closing a socket with unread bytes
        resets the connection, and the client would lose the response (RFC 9112 section 9.6). So it is where the client
        still has to read: nothing would bound how long the kernel keeps the response of a socket that is closed.
        """
        self._ended = True
        self._writer.flush()
        sending = self._reading_paused or not self._parser.starved or self._parser.in_message
        self._parser.close()
        if self._writer.progress()[1] or (sending and not self._half_closed):
            with suppress(OSError):  # the client is gone already
                self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()

    # Deadlines

    def _waiting(self, unread: int) -> tuple[tuple[str, object], float | None]:
        """What is waited for, with a mark that differs after any progress, and for how many seconds at most."""
        limits = self._server.deadlines
        if unread:
            return ("reader", self._taken), limits.stall
        if self._ended:
            return ("last bytes", None), 0 if self._half_closed else limits.last_bytes
        if self._parser.in_message:
            return ("request", self._parser.begun), limits.request
        if self._current is not None:
            return ("answer", None), None
        return ("idle", self._parser.begun), limits.idle
