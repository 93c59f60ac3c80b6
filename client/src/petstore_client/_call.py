"""One call: its attempts, its waits, and what each response means. No I/O. See `_effects`."""

import uuid
from collections.abc import Callable
from typing import NamedTuple

from petstore_client._admission import Admission, Session, log, notify
from petstore_client._effects import Effects, Read, Send, Sleep, T
from petstore_client._http import LONGEST_SMALL_BODY, TRANSPORT_ERRORS, Reply, connection_error
from petstore_client._http import refusal as refusal_of
from petstore_client._limits import read_limits
from petstore_client._retry import backoff, is_transient, leaves_doubt
from petstore_client._stream import reader
from petstore_client._types import RetryEvent
from petstore_client.errors import (
    APIConnectionError,
    APITimeoutError,
    InvalidResponseError,
    PetstoreError,
    RateLimitError,
    ServerError,
)

_IN_DOUBT = "It may have been applied; if so, a later attempt responds order_already_cancelled."


class Operation(NamedTuple):
    """An operation of the interface. `version` is the path segment of the API version that has it."""

    name: str
    method: str
    path: str
    success: int
    version: str = "v1"


class Call:
    """One call of an operation, from its first attempt to its result or error."""

    def __init__(self, session: Session, operation: Operation, identifier: int | None = None) -> None:
        self._session = session
        self.target = session.target
        self._options = session.options
        self._clock = session.options.clock
        self._operation = operation
        self._path = operation.path.format(id=identifier)
        self.request_id = uuid.uuid4().hex
        self.headers = session.target.headers(self.request_id)
        self._admission = Admission(session, operation.name, self.request_id)
        self.in_doubt = False  # an attempt whose response was lost may have been carried out
        self.committed = False  # part of the result was handed out, so there is no further attempt
        self._attempt = 0
        self._refuted = False  # the response to the latest attempt shows that it was not carried out
        self._wait = 0.0
        self._began = 0.0

    def run(self, receive: Callable[[Reply], Effects[T]]) -> Effects[T]:
        """Send until a response below 400 arrives, and return what `receive` makes of it. Raises PetstoreError."""
        self._began = self._clock.monotonic()
        try:
            while True:
                yield from self._admission.enter()
                try:
                    reply = yield from self._send()
                    result = yield from receive(reply)
                except PetstoreError as error:
                    self._consider(error)
                else:
                    self._session.budget.succeeded()
                    return result
                yield Sleep(self._wait)
        except PetstoreError as error:
            self._complete(error)
            raise
        finally:
            self._admission.leave()

    def read(self) -> Effects[bytes | None]:
        """Read on in the body; None at its end. Raises APIConnectionError."""
        try:
            piece: bytes | None = yield Read()
        except TRANSPORT_ERRORS as error:
            raise connection_error(error, self._session.target) from error
        return piece

    def read_small(self, reply: Reply) -> Effects[bytes]:
        """Read a body that must be small. Raises InvalidResponseError if it is not."""
        base_url, timeout = self._session.target.base_url, self._options.timeout
        inflate = reader(reply.encoding)
        body = bytearray()
        began = self._clock.monotonic()
        while (piece := (yield from self.read())) is not None:
            if timeout is not None and self._clock.monotonic() - began > timeout:
                raise APITimeoutError(f"{base_url} sends its response too slowly.")
            for text in inflate.feed(piece):
                body += text
                if len(body) > LONGEST_SMALL_BODY:
                    raise InvalidResponseError(
                        f"{base_url} responded {reply.status} with more data than this API sends; is the base URL "
                        "right?",
                        reply.status,
                    )
        for text in inflate.finish():
            body += text
        return bytes(body)

    def _send(self) -> Effects[Reply]:
        """Send once, and inform the gate. A response of 400 or above is raised as its exception."""
        session, operation = self._session, self._operation
        self._attempt += 1
        self._refuted = False
        began = self._clock.monotonic()
        try:
            reply: Reply = yield Send(
                operation.method, session.target.url(operation.version, self._path), dict(self.headers)
            )
        except TRANSPORT_ERRORS as error:
            raise connection_error(error, session.target) from error
        now = self._clock.monotonic()
        limits = read_limits(reply.headers, self._clock.now())
        session.rate_limit = limits.shown or session.rate_limit
        log.debug(
            "%s: %s %s responded %d in %.3f s (attempt %d, request %s)",
            operation.name, operation.method, self._path, reply.status, now - began, self._attempt, self.request_id,
        )  # fmt: skip
        moved = self._admission.settle(reply, limits, now)
        if reply.status < 400:
            return reply
        self._refuted = reply.status < 500
        try:
            body = yield from self.read_small(reply)
        except (APIConnectionError, InvalidResponseError):
            if reply.status < 500 and reply.status != 429:
                raise
            body = b""  # the status is enough
        if reply.status == 429:
            raise self._admission.refusal(body, limits.pause, now, moved)
        raise refusal_of(reply, body, session.target, limits.retry_after)

    def _consider(self, error: PetstoreError) -> None:
        """Decide on a failed attempt: set the wait before the next one, or raise the error."""
        doubtful = leaves_doubt(error) and not self._refuted
        self._admission.leave(charged=doubtful)
        self.in_doubt = self.in_doubt or doubtful
        last = self.committed or self._attempt > self._options.max_retries
        self._wait = self._wait_after(error, last)
        self._report_retry(error)

    def _wait_after(self, error: PetstoreError, last: bool) -> float:
        """Seconds before the next attempt. Raises the error if there is none, as after the last."""
        options = self._options
        now = self._clock.monotonic()
        if isinstance(error, RateLimitError):
            return self._admission.wait_after(error, last)
        if last or not is_transient(error):
            raise error
        wait = backoff(self._attempt, options.jitter)
        if isinstance(error, ServerError) and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        spent = now - self._began - self._admission.waited
        if wait > options.max_wait or spent + wait > options.retry_timeout:
            raise error
        if not self._session.budget.take(now):
            raise error
        return wait

    def _complete(self, error: PetstoreError) -> None:
        """Record in an error which request it was, and whether the request may have been carried out."""
        if self._attempt:
            error.request_id = self.request_id
        if self._operation.method != "GET" and self.in_doubt and not error.may_have_been_applied:
            error.may_have_been_applied = True
            error.add_note(_IN_DOUBT)
        log.debug("%s failed: %s (request %s)", self._operation.name, error, self.request_id)

    def _report_retry(self, error: PetstoreError) -> None:
        log.warning(
            "%s: attempt %d failed (%s); retrying in %.1f s (request %s)",
            self._operation.name, self._attempt, error, self._wait, self.request_id,
        )  # fmt: skip
        event = RetryEvent(self._operation.name, self._attempt, self._wait, error, self.request_id)
        notify(self._options.on_retry, event)
