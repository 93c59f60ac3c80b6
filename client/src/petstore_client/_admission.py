"""A call's place at the gate: it waits until it may send, and informs the gate of each response. No I/O."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from petstore_client._effects import Effects, Queue, Sleep
from petstore_client._gate import Gate, Place, Ticket
from petstore_client._http import Reply, Target, read_error
from petstore_client._limits import MAX_WAIT, Limits, RateLimit
from petstore_client._options import Options
from petstore_client._types import RateLimitEvent, ResponseEvent
from petstore_client.errors import EndedBy, KeyBannedError, RateLimitError

log = logging.getLogger("petstore_client")
log.addHandler(logging.NullHandler())

_OF_THE_ACCOUNT = frozenset({304, 400, 403, 404, 409, 410, 412, 415, 422, 429})
_BANNED = "api_key_banned"
_PATIENCE = 60.0  # seconds to wait for another request that has no timeout
_MAX_PATIENCE = 86_400.0  # operating systems do not wait for an infinite time
_LONG = 5.0  # seconds of a wait that should not be silent
_TICK = 0.001  # a sleep may end this much early


@dataclass(eq=False)
class Observed:
    """What the last responses to one client said."""

    rate_limit: RateLimit | None = None
    last_response: ResponseEvent | None = None


class Session(NamedTuple):
    """What a call needs of its client."""

    target: Target
    options: Options[Any, Any]
    gate: Gate
    observed: Observed
    check: Callable[[], None]  # raises PetstoreError if the client was closed, or the process forked, since the start


class Admission:
    """The place of one call at the gate. It has `waited` seconds for limits, and must end at `deadline` (monotonic)."""

    def __init__(self, session: Session, operation: str, request_id: str) -> None:
        self.waited = 0.0
        self.closings = 0  # of the gate, until the latest request passed
        self._imposed = 0.0  # seconds of the wait after the latest 429
        self._session = session
        self._options = session.options
        self._clock = session.options.clock
        self._gate = session.gate
        self._operation = operation
        self._request_id = request_id
        self._ticket: Ticket | None = None
        self._turn: int | None = None  # the number of a ticket whose request was not sent
        deadline = session.options.deadline
        self.deadline = float("inf") if deadline is None else self._clock.monotonic() + deadline

    def enter(self) -> Effects[bool]:
        """Wait for permission to send one request, and return whether others wait for the response to it.

        Raises RateLimitError if the wait is too long.
        """
        arrived = self._clock.monotonic()
        patience = min(self._options.max_wait, self.deadline - arrived)
        ticket = self._ticket = self._gate.enter(arrived, patience, self._turn)
        self._turn = None
        while True:
            if ticket.place is Place.WAITING:
                yield from self._queue(ticket)
            now = self._clock.monotonic()
            if ticket.place is Place.PASSED:
                self.waited += now - arrived
                self.closings = ticket.closings
                if now >= self.deadline:
                    raise self._held_back("The call waited too long for its turn", 0.0, "deadline")
                return ticket is self._gate.probe
            wait = ticket.until - now
            if ticket.place is Place.HELD and wait >= _TICK:
                self._accept(wait, ticket.banned)
            yield from self.wait(Sleep(max(0.0, wait)))
            self._gate.enter_again(ticket, self._clock.monotonic())

    def wait(self, effect: Sleep | Queue) -> Effects[None]:
        """Wait. Raises PetstoreError if the call cannot continue after it."""
        yield effect
        self._session.check()

    def record_response(self, reply: Reply, limits: Limits, now: float) -> bool:
        """Inform the gate of a response, and return whether it describes the account's windows (D13, D14)."""
        ticket, self._ticket = self._ticket, None
        moves = not limits.of_address and (reply.status < 300 or reply.status in _OF_THE_ACCOUNT)
        if ticket is not None and moves:
            self._gate.record_response(ticket, now, limits, reply.status == 429, self._options.jitter)
        elif ticket is not None:
            self._gate.leave(ticket, now, charged=reply.status >= 500)
        return moves

    def leave(self, charged: bool = False) -> None:
        """Release the place at the gate, if it has one; `charged` if the server may have counted the request."""
        if self._ticket is not None:
            self._gate.leave(self._ticket, self._clock.monotonic(), charged)

    def leave_unsent(self) -> None:
        """Release the place of a request that was not sent. The next one of this call has its turn."""
        self._turn = self._ticket.number if self._ticket else None
        self.leave()

    def refusal(self, body: bytes, pause: float, now: float, moved: bool) -> RateLimitError:
        """The exception for a 429. It imposes a wait until the gate reopens, or of `pause` if the gate ignored it."""
        record, target = read_error(body), self._session.target
        message = target.key.redact(record.message) if record else f"{target.base_url} responded 429."
        code = target.key.redact(record.code) if record else ""
        if code == _BANNED:
            self._gate.ban(now + pause)
        self._imposed = self._gate.held_for(now) if moved else pause
        kind = KeyBannedError if code == _BANNED else RateLimitError
        retry_at = self._time_after(self._imposed)
        return kind(code, f"{message} Retry at {_iso(retry_at)}.", 429, retry_at)

    def wait_after(self, error: RateLimitError) -> float:
        """Accept the wait after a 429, in seconds. Raises the error instead if the call does not wait.

        Only time bounds these waits, not a number: with many processes, a call may be refused often.
        """
        banned = isinstance(error, KeyBannedError)
        error.ended_by = None if banned else self.objection(self._imposed)
        waits = not banned and error.ended_by is None
        self._report(self._imposed, refused=True, waits=waits)
        if not waits:
            raise error
        self.waited += self._imposed
        return self._imposed

    def objection(self, wait: float) -> EndedBy | None:
        """The option that forbids a wait, or None."""
        if wait > self._options.max_wait:
            return "max_wait"
        return "deadline" if self._clock.monotonic() + wait >= self.deadline else None

    def _queue(self, ticket: Ticket) -> Effects[None]:
        """Wait for the requests in front, which end with their responses: this wait is not imposed by a limit.

        A window that ends meanwhile has room for this request too, however long the server holds those in front.
        """
        patience = min(max(self._options.max_wait, 2 * (self._options.read_timeout or _PATIENCE)), _MAX_PATIENCE)
        left = self.deadline - self._clock.monotonic()
        ended_by: EndedBy = "deadline" if left <= patience else "max_wait"
        left = min(left, patience)
        while left > 0:
            seconds = min(left, self._gate.renews_in(self._clock.monotonic()))
            if ticket.place is not Place.WAITING:
                return
            yield from self.wait(Queue(ticket, seconds))
            left -= seconds
        if self._gate.give_up(ticket):
            raise self._held_back("The requests before this one got no response in time", 0.0, ended_by)

    def _accept(self, wait: float, banned: bool) -> None:
        """Accept a wait before sending. Raises RateLimitError if it is too long."""
        if banned:
            retry_at = self._time_after(wait)
            message = f"This key is banned until {_iso(retry_at)} because requests continued after a 429."
            raise KeyBannedError(_BANNED, message, 429, retry_at, False)
        ended_by = self.objection(wait)
        self._report(wait, refused=False, waits=ended_by is None)
        if ended_by is not None:
            raise self._held_back("The limit of this key is used up", wait, ended_by)

    def _held_back(self, why: str, wait: float, ended_by: EndedBy) -> RateLimitError:
        retry_at = self._time_after(wait)
        message = f"{why}; nothing was sent. Retry at {_iso(retry_at)}, or raise {ended_by}."
        error = RateLimitError("rate_limit_exceeded", message, 429, retry_at, False)
        error.ended_by = ended_by
        return error

    def _time_after(self, wait: float) -> datetime:
        return datetime.fromtimestamp(self._clock.now() + min(wait, MAX_WAIT), UTC)

    def _report(self, wait: float, refused: bool, waits: bool) -> None:
        level = logging.WARNING if wait > _LONG and waits else logging.INFO
        log.log(level, "%s: a limit imposes a wait of %.1f s (request %s)", self._operation, wait, self._request_id)
        event = RateLimitEvent(
            operation=self._operation, wait=wait, retry_at=self._time_after(wait), refused=refused, waits=waits,
            request_id=self._request_id,
        )  # fmt: skip
        notify(self._options.on_rate_limit, event)


def notify(hook: Callable[..., object] | None, event: Any) -> None:
    """Call a hook, if there is one. A faulty hook must not cost a call its result."""
    try:
        if hook is not None:
            hook(event)
    except Exception:
        log.exception("A hook failed (request %s)", event.request_id)


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
