"""One call: its attempts, its waits, and what becomes of each answer. No I/O: see `steps`."""

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from petstore_client.clock import Clock
from petstore_client.errors import (
    APIConnectionError,
    APITimeoutError,
    InvalidResponseError,
    KeyBannedError,
    PetstoreError,
    RateLimitError,
    ServerError,
)
from petstore_client.events import RateLimitEvent, RetryEvent
from petstore_client.gate import Gate, Place, Ticket
from petstore_client.limits import LONGEST_WAIT, Limits, RateLimit, read_limits
from petstore_client.retry import RetryBudget, RetryPolicy, backoff, is_transient, leaves_doubt
from petstore_client.steps import Queue, Read, Send, Sleep, Steps, T
from petstore_client.stream import reader
from petstore_client.wire import LONGEST_SMALL_BODY, Reply, Target, read_error, refusal

_log = logging.getLogger("petstore_client")

_OF_THE_ACCOUNT = frozenset({403, 404, 409, 410, 429})
_BANNED = "api_key_banned"
_PATIENCE = 60.0  # seconds for a request without a timeout
_LONGEST_PATIENCE = 86_400.0  # no operating system waits for an infinite time
_TICK = 0.001  # a sleep may end this much early
_IN_DOUBT = "It may have been applied all the same; a later order_already_cancelled would say so."


@dataclass(eq=False)
class Session:
    """What the calls of one client share."""

    target: Target
    policy: RetryPolicy
    gate: Gate
    budget: RetryBudget
    clock: Clock
    jitter: Callable[[], float]
    timeout: float | None
    pacing: str | None
    on_retry: Callable[[RetryEvent], object] | None
    on_rate_limit: Callable[[RateLimitEvent], object] | None
    rate_limit: RateLimit | None = None


class Call:
    """One call of an operation, from its first attempt to its result or error."""

    def __init__(self, session: Session, operation: str, method: str, path: str) -> None:
        self._session = session
        self._operation = operation
        self._method = method
        self._path = path
        self.request_id = uuid.uuid4().hex
        self.headers = session.target.headers(self.request_id)
        self.in_doubt = False  # an attempt may have been carried out, though no answer to it came
        self.committed = False  # part of the result was handed out: there is no second attempt any more
        self._attempt = 0
        self._refuted = False  # the latest attempt was answered in a way that says it was not carried out
        self._ticket: Ticket | None = None
        self._waited = 0.0  # seconds spent on limits rather than on failures
        self._wait = 0.0
        self._pause = 0.0
        self._began = 0.0

    def run(self, receive: Callable[[Reply], Steps[T]]) -> Steps[T]:
        """Send until an answer below 400 comes, and return what `receive` makes of it; raises PetstoreError."""
        self._began = self._session.clock.monotonic()
        try:
            while True:
                yield from self._enter()
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
            self._leave()

    def read_small(self, reply: Reply) -> Steps[bytes]:
        """Read a body that must be small. Raises InvalidResponseError where it is not."""
        inflate = reader(reply.encoding)
        body = bytearray()
        began = self._session.clock.monotonic()
        while (piece := (yield Read())) is not None:
            if self._session.timeout is not None and self._session.clock.monotonic() - began > self._session.timeout:
                raise APITimeoutError(f"{self._session.target.base_url} sends its answer too slowly.")
            for text in inflate.feed(piece):
                body += text
                if len(body) > LONGEST_SMALL_BODY:
                    raise InvalidResponseError(
                        f"{self._session.target.base_url} answered {reply.status} with more than this API ever sends "
                        "there; is the base URL right?",
                        reply.status,
                    )
        for text in inflate.finish():
            body += text
        return bytes(body)

    def _enter(self) -> Steps[None]:
        """Wait at the gate, then take a pass for one request. Raises RateLimitError where the wait is too long."""
        session = self._session
        yield from self._pace()
        arrived, holds = session.clock.monotonic(), 0
        while True:
            ticket = self._ticket = session.gate.enter(session.clock.monotonic())
            if ticket.place is Place.WAITING:
                # Not a limit's doing: whoever is in front needs no longer than its answer takes.
                patience = max(session.policy.max_wait, 2 * (session.timeout or _PATIENCE))
                yield Queue(ticket, min(patience, _LONGEST_PATIENCE))
                self._give_up_queue(ticket)  # where the wait was in vain
            now = session.clock.monotonic()
            if ticket.place is Place.PASSED:
                self._waited += now - arrived
                return
            wait = ticket.until - now
            if wait < _TICK:
                yield Sleep(max(0.0, wait))
                continue
            holds += 1
            if ticket.banned:
                raise self._held_back(KeyBannedError, _BANNED, "This key is banned", wait)
            waits = wait <= session.policy.max_wait and holds <= session.policy.max_retries + 1
            self._tell_of_limit(wait, refused=False, waits=waits)
            if not waits:
                raise self._held_back(RateLimitError, "rate_limit_exceeded", "The limit of this key is used up", wait)
            yield Sleep(wait)

    def _give_up_queue(self, ticket: Ticket) -> None:
        if self._session.gate.give_up(ticket):
            raise self._held_back(
                RateLimitError, "rate_limit_exceeded", "The requests before this one got no answer in time", 0.0
            )

    def _pace(self) -> Steps[None]:
        session = self._session
        if session.pacing is None:
            return
        wait = session.gate.reserve_slot(session.clock.monotonic(), session.pacing)
        try:
            if wait > 0:
                yield Sleep(wait)
                self._waited += wait
        finally:
            session.gate.use_slot()

    def _send(self) -> Steps[Reply]:
        """Send once, and tell the gate; an answer of 400 or above is raised as what it stands for."""
        session = self._session
        self._attempt += 1
        self._refuted = False
        began = session.clock.monotonic()
        reply: Reply = yield Send(self._method, self._path, self.headers)
        now = session.clock.monotonic()
        limits = read_limits(reply.headers, session.clock.now())
        session.rate_limit = limits.shown or session.rate_limit
        _log.debug(
            "%s: %s %s answered %d in %.3f s (attempt %d, request %s)",
            self._operation, self._method, self._path, reply.status, now - began, self._attempt, self.request_id,
        )  # fmt: skip
        moved = self._move_gate(reply, limits, now)
        if reply.status < 400:
            return reply
        self._refuted = reply.status < 500
        try:
            body = yield from self.read_small(reply)
        except (APIConnectionError, InvalidResponseError):
            if reply.status < 500 and reply.status != 429:
                raise
            body = b""  # the status alone says enough
        if reply.status == 429:
            raise self._refused(body, limits, now, moved)
        raise refusal(reply, body, session.target, limits.retry_after)

    def _move_gate(self, reply: Reply, limits: Limits, now: float) -> bool:
        """Tell the gate of the answer; whether it was moved by it."""
        session, ticket = self._session, self._ticket
        moves = not limits.of_address and (reply.status < 300 or reply.status == 304 or reply.status in _OF_THE_ACCOUNT)
        if ticket is not None and moves:
            session.gate.settle(ticket, now, limits, reply.status == 429)
        elif ticket is not None:
            session.gate.leave(ticket, now, charged=reply.status >= 500)
        self._ticket = None
        return moves

    def _refused(self, body: bytes, limits: Limits, now: float, moved: bool) -> RateLimitError:
        """The error of a 429; `retry_at` is when the gate reopens, or what the answer named where it did not move."""
        session = self._session
        record = read_error(body)
        message = session.target.key.redact(record.message) if record else "The server answered 429."
        code = record.code if record else ""
        if code == _BANNED:
            session.gate.ban(now + limits.pause)
        self._pause = session.gate.held_for(now) if moved else limits.pause
        kind = KeyBannedError if code == _BANNED else RateLimitError
        return kind(code, message, 429, self._moment(self._pause))

    def _consider(self, error: PetstoreError) -> None:
        """Decide on a failed attempt: note the wait before the next one, or raise the error."""
        doubtful = leaves_doubt(error) and not self._refuted
        self._leave(charged=doubtful)
        self.in_doubt = self.in_doubt or doubtful
        last = self.committed or self._attempt > self._session.policy.max_retries
        self._wait = self._wait_after(error, last)
        self._tell_of_retry(error)

    def _wait_after(self, error: PetstoreError, last: bool) -> float:
        """Seconds before the next attempt; raises the error where there is to be none, as after the last."""
        session = self._session
        now = session.clock.monotonic()
        if isinstance(error, RateLimitError):
            wait = self._pause
            waits = not last and wait <= session.policy.max_wait and not isinstance(error, KeyBannedError)
            self._tell_of_limit(wait, refused=True, waits=waits)
            if not waits:
                raise error
            self._waited += wait
            return wait
        if last or not is_transient(error):
            raise error
        wait = backoff(self._attempt, session.jitter)
        if isinstance(error, ServerError) and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        spent = now - self._began - self._waited
        if wait > session.policy.max_wait or spent + wait > session.policy.retry_timeout:
            raise error
        if not session.budget.take(now):
            raise error
        return wait

    def _leave(self, charged: bool = False) -> None:
        if self._ticket is not None:
            self._session.gate.leave(self._ticket, self._session.clock.monotonic(), charged)
            self._ticket = None

    def _held_back(self, kind: type[RateLimitError], code: str, why: str, wait: float) -> RateLimitError:
        retry_at = self._moment(wait)
        text = f"{why}; nothing was sent. Come back at {retry_at.isoformat(timespec='seconds')}, or raise max_wait."
        if kind is KeyBannedError:
            text = f"{why} until {retry_at.isoformat(timespec='seconds')}, because requests went on after a 429."
        return kind(code, text, 429, retry_at, False)

    def _moment(self, wait: float) -> datetime:
        return datetime.fromtimestamp(self._session.clock.now() + min(wait, LONGEST_WAIT), UTC)

    def _complete(self, error: PetstoreError) -> None:
        """Say in an error which request it was, and whether the request may have been carried out all the same."""
        if self._attempt:
            error.request_id = self.request_id
        if self._method != "GET" and self.in_doubt and not error.may_have_been_applied:
            error.may_have_been_applied = True
            error.add_note(_IN_DOUBT)
        _log.debug("%s failed: %s (request %s)", self._operation, error, self.request_id)

    def _tell_of_retry(self, error: PetstoreError) -> None:
        _log.warning(
            "%s: attempt %d failed (%s); the next one in %.1f s (request %s)",
            self._operation, self._attempt, error, self._wait, self.request_id,
        )  # fmt: skip
        if self._session.on_retry is not None:
            event = RetryEvent(self._operation, self._attempt, self._wait, error, self.request_id)
            self._tell(self._session.on_retry, event)

    def _tell_of_limit(self, wait: float, refused: bool, waits: bool) -> None:
        _log.info("%s is held up by a limit for %.1f s (request %s)", self._operation, wait, self.request_id)
        if self._session.on_rate_limit is not None:
            moment = self._moment(wait)
            event = RateLimitEvent(self._operation, wait, moment, refused, waits, self.request_id)
            self._tell(self._session.on_rate_limit, event)

    def _tell(self, hook: Callable[..., object], event: object) -> None:
        try:
            hook(event)
        except Exception:  # noqa: BLE001 - a faulty hook must not cost a call its result, a cancel least of all
            _log.exception("A hook failed (request %s)", self.request_id)
