"""One call: its attempts, its waits, and what each response means. No I/O. See `_effects`."""

import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

from petstore_client import _http as http
from petstore_client import errors
from petstore_client._admission import Admission, Session, log, notify
from petstore_client._effects import Effects, Emit, NotSent, Read, Send, Sleep, T
from petstore_client._http import Reply
from petstore_client._limits import read_limits
from petstore_client._options import MIN_TIMEOUT
from petstore_client._stream import Inflater
from petstore_client._types import ResponseEvent, RetryEvent

FIRST_BACKOFF, MAX_BACKOFF = 0.5, 20.0  # seconds: bounds of the first backoff, which doubles each time, and of all

RETRIED_STATUSES = frozenset({500, 502, 503, 504})


class Operation(NamedTuple):
    """An operation of the interface, with its successful statuses. `version` is the path segment of its API version.

    An operation that changes something has three more fields. `doubt` is a note for errors of calls that may have been
    applied. An Error record with one of the `conclusive` statuses shows that no attempt of the call was applied. If it
    is not `repeatable`, there is no further attempt after one that may have been applied.
    """

    name: str
    method: str
    path: str
    success: Collection[int]
    version: str = "v1"
    doubt: str = ""
    conclusive: frozenset[int] = frozenset()
    repeatable: bool = True


class Call:
    """One call of an operation, from its first attempt to its result or error."""

    def __init__(
        self, session: Session, operation: Operation, identifier: int | str | None = None, text: str = "", hold: int = 0
    ) -> None:
        self._session = session
        self.target = session.target
        self._options = session.options
        self._clock = session.options.clock
        self.operation = operation
        self._path = operation.path.format(id=identifier) + (f"?{text}" if text else "")
        self.request_id = str(session.options.request_id or f"{http.REQUEST_ID_PREFIX}{uuid.uuid4().hex}")
        self.headers = session.target.headers(self.request_id, self._options.app_name, self._options.headers)
        self.content: bytes | None = None
        self.reply = Reply(0, {}, "")  # the latest
        self.probes = False  # other requests wait for the response to the latest one
        self._hold = hold  # seconds for which the server may hold any other request
        self.in_doubt = False  # an attempt whose response was lost, or one with the same key, may have been applied
        self.committed = False  # part of the result was handed out, so there is no further attempt
        self._admission = Admission(session, operation.name, self.request_id)
        self._began = self._clock.monotonic()
        self._attempt = 0
        self._failures = 0  # attempts that failed for another reason than a limit
        self._retries = 0  # of these, those that count towards max_retries
        self._unanswered = False  # no response shows what became of the latest attempt
        self._wait = 0.0

    def run(self, receive: Callable[[Reply], Effects[T]]) -> Effects[T]:
        """Send until a successful response arrives, and return what `receive` makes of it. Raises PetstoreError."""
        try:
            while True:
                self.probes = yield from self._admission.enter()
                try:
                    reply = yield from self._send(0 if self.probes else self._hold)  # others wait for a probe
                    unchanged = reply.status == 304 and "If-None-Match" in self.headers
                    http.check_success(reply, {304} if unchanged else self.operation.success, self.target)
                    self.report_success()
                    result = yield from receive(reply)
                except NotSent:
                    continue
                except errors.PetstoreError as error:
                    self._consider(error)
                else:
                    return result
                yield from self._admission.wait(Sleep(self._wait))
        except GeneratorExit:
            raise
        except BaseException as error:
            self._complete(error)
            raise
        finally:  # the server may have counted a request that was cancelled in flight
            self._admission.leave(charged=self._unanswered)

    def read(self) -> Effects[bytes | None]:
        """Read on in the body; None at its end. Raises APIConnectionError."""
        try:
            piece: bytes | None = yield Read(float("inf") if self.committed else self._admission.deadline)
        except http.TRANSPORT_ERRORS as error:
            raise http.connection_error(error, self.target) from http.cause(error, self.target)
        if not self.committed and self._clock.monotonic() > self._admission.deadline:
            raise errors.APITimeoutError(f"{self.target.base_url} did not send its whole response before the deadline.")
        return piece

    def read_small(self, reply: Reply, longest: int = http.MAX_SMALL_BODY) -> Effects[bytes]:
        """Read a body of at most `longest` bytes. Raises InvalidResponseError if it is longer.

        A small one must be complete within the read timeout, which for a longer one bounds each part.
        """
        base_url = self.target.base_url
        timeout = self._options.read_timeout if longest <= http.MAX_SMALL_BODY else None
        inflate = Inflater(reply.encoding, reply.status)
        body = bytearray()
        began = self._clock.monotonic()
        while (piece := (yield from self.read())) is not None:
            if timeout is not None and self._clock.monotonic() - began > timeout:
                raise errors.APITimeoutError(f"{base_url} sends its response too slowly.")
            for text in inflate.feed(piece):
                body += text
                if len(body) > longest:
                    what = f"{base_url} responded {reply.status} with more data than this API sends"
                    raise errors.InvalidResponseError(f"{what}; is the base URL right?", reply.status)
        inflate.finish()
        return bytes(body)

    def emit(self, orders: list[Any]) -> Effects[None]:
        """Hand out a part of the result, so that there is no further attempt. Raises PetstoreError if closed."""
        self.committed = True
        yield Emit(orders)
        self._session.check()

    def report_success(self) -> None:
        """Record the latest response as a success, and call the hook."""
        status, headers, _ = self.reply
        event = ResponseEvent(
            operation=self.operation.name, status=status, request_id=self.request_id, etag=headers.get("etag"),
            attempts=self._attempt, headers=headers,
        )  # fmt: skip
        self._session.observed.last_response = event
        notify(self._options.on_response, event)

    def rest(self) -> Session:
        """The session for a further request of the same call: it must end at the same deadline."""
        options = self._options
        if options.deadline is not None:
            left = self._admission.deadline - self._clock.monotonic()
            options = replace(options, deadline=max(MIN_TIMEOUT, left))
        return self._session._replace(options=options)

    def _send(self, hold: int) -> Effects[Reply]:
        """Send once, to be held for `hold` seconds, and inform the gate. A response of 400 or above is raised.

        Raises NotSent if the gate has closed: this is not an attempt.
        """
        operation, observed = self.operation, self._session.observed
        self._attempt += 1
        self._unanswered = True
        began = self._clock.monotonic()
        left = self._admission.deadline - began
        hold = int(min(hold, left / 2))
        timeout = self._options.timeout_within(left, max(0, hold))
        url = self.target.url(operation.version, self._path + (f"&wait={hold}" if hold else ""))
        try:
            ends, closings, headers = self._admission.deadline, self._admission.closings, dict(self.headers)
            reply: Reply = yield Send(operation.method, url, headers, timeout, self.content, ends, closings)
        except NotSent:
            self._attempt -= 1
            self._unanswered = False
            self._admission.waited += self._clock.monotonic() - began
            self._admission.leave_unsent()
            raise
        except http.TRANSPORT_ERRORS as error:
            self._admission.waited += min(hold, self._clock.monotonic() - began)  # is not for retry_timeout
            raise http.connection_error(error, self.target) from http.cause(error, self.target)
        now = self._clock.monotonic()
        limits = read_limits(reply.headers, self._clock.now())
        self.reply = reply
        log.debug(
            "%s: %s %s responded %d in %.3f s (attempt %d, request %s)",
            operation.name, operation.method, self._path, reply.status, now - began, self._attempt, self.request_id,
        )  # fmt: skip
        self.request_id = http.request_id_of(reply, self.headers["X-Request-Id"], self.target) or self.request_id
        observed.rate_limit = limits.shown or observed.rate_limit
        moved = self._admission.record_response(reply, limits, now)
        if reply.status < 400:
            return reply
        self._unanswered = reply.status >= 500
        try:
            body = yield from self.read_small(reply)
        except (errors.APIConnectionError, errors.InvalidResponseError):
            if reply.status < 500 and reply.status != 429:
                raise
            body = b""  # the status is enough
        if reply.status == 429:
            raise self._admission.refusal(body, limits.pause, now, moved)
        raise http.refusal(reply, body, self.target, limits.retry_after)

    def _consider(self, error: errors.PetstoreError) -> None:
        """Decide on a failed attempt: set the wait before the next one, or raise the error."""
        doubtful = leaves_doubt(error) and self._unanswered
        self._admission.leave(charged=doubtful)
        self.in_doubt = self.in_doubt or doubtful or is_in_use(error)
        self._unanswered = False
        self._wait = self._wait_after(error)
        self._session.check()
        log.warning(
            "%s: attempt %d failed (%s); retrying in %.1f s (request %s)",
            self.operation.name, self._attempt, error, self._wait, self.request_id,
        )  # fmt: skip
        event = RetryEvent(
            operation=self.operation.name, attempt=self._attempt, wait=self._wait, error=error,
            request_id=self.request_id,
        )  # fmt: skip
        notify(self._options.on_retry, event)

    def _wait_after(self, error: errors.PetstoreError) -> float:
        """Seconds before the next attempt. Raises the error if there is none."""
        if isinstance(error, errors.RateLimitError):
            return self._admission.wait_after(error)
        repeatable = self.operation.repeatable or not leaves_doubt(error)
        if self.committed or not repeatable or not is_transient(error):
            raise error
        self._session.check()  # a closed client is the cause, not an option that allows no further attempt
        self._failures += 1
        if not isinstance(error, errors.APIConnectionError) or error.sent:  # only time helps if nothing can be reached
            self._retries += 1
        wait = self._options.jitter() * min(MAX_BACKOFF, FIRST_BACKOFF * 2.0 ** min(self._failures - 1, 16))
        if isinstance(error, errors.APIStatusError):
            wait = max(wait, error.retry_after or 0.0)
        spent = self._clock.monotonic() - self._began - self._admission.waited
        if self._retries > self._options.max_retries or not self._options.max_retries:
            error.ended_by = "max_retries"
        elif spent + wait > self._options.retry_timeout:
            error.ended_by = "retry_timeout"
        else:
            error.ended_by = self._admission.objection(wait)
        if error.ended_by is not None:
            raise error
        return wait

    def _complete(self, error: BaseException) -> None:
        """Record in an error which request it was, and whether the request may have been carried out."""
        doubt = self.operation.doubt
        conclusive = False
        if isinstance(error, errors.APIStatusError):
            has_code = error.code != ""  # a proxy's error has none
            conclusive = error.status in self.operation.conclusive and has_code and not is_in_use(error)
        in_doubt = bool(doubt) and (self.in_doubt or self._unanswered) and not conclusive
        if isinstance(error, errors.PetstoreError):
            if self._attempt:
                error.request_id = self.request_id
            error.may_have_been_applied = error.may_have_been_applied or in_doubt
            log.debug("%s failed: %s (request %s)", self.operation.name, error, self.request_id)
        if in_doubt:
            error.add_note(doubt)


def is_transient(error: errors.PetstoreError) -> bool:
    """Whether a repetition of the same request may succeed. 4xx are permanent, except a key that is in use just now."""
    if isinstance(error, errors.APIStatusError):
        return error.status in RETRIED_STATUSES or is_in_use(error)
    if isinstance(error, errors.InvalidResponseError):
        return error.truncated
    return isinstance(error, errors.APIConnectionError) and error.retryable


def is_in_use(error: errors.PetstoreError) -> bool:
    """Whether another request with the same idempotency key is being processed, which may place the order."""
    return isinstance(error, errors.ConflictError) and error.code == "idempotency_key_in_use"


def leaves_doubt(error: errors.PetstoreError) -> bool:
    """Whether the server may have carried the request out although its response was lost."""
    if isinstance(error, errors.APIConnectionError):
        return error.sent
    if isinstance(error, errors.InvalidResponseError):
        return error.status is not None and error.status < 300
    return isinstance(error, errors.ServerError)
