"""A call's place at the gate: it waits until it may send, and informs the gate of each response. No I/O."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from petstore_client._effects import Effects, Queue, Sleep
from petstore_client._gate import Gate, Place, Ticket
from petstore_client._http import Reply, Target, read_error
from petstore_client._limits import LONGEST_WAIT, Limits, RateLimit
from petstore_client._options import Options
from petstore_client._retry import RetryBudget
from petstore_client._types import RateLimitEvent
from petstore_client.errors import KeyBannedError, RateLimitError

log = logging.getLogger("petstore_client")

_OF_THE_ACCOUNT = frozenset({403, 404, 409, 410, 429})
_BANNED = "api_key_banned"
_PATIENCE = 60.0  # seconds to wait for another request that has no timeout
_LONGEST_PATIENCE = 86_400.0  # operating systems do not wait for an infinite time
_TICK = 0.001  # a sleep may end this much early


@dataclass(eq=False)
class Session:
    """What the calls of one client share."""

    target: Target
    options: Options[Any, Any]
    gate: Gate
    budget: RetryBudget
    rate_limit: RateLimit | None = None


class Admission:
    """The place of one call at the gate. `waited` is the time in seconds that the call spent waiting for limits."""

    def __init__(self, session: Session, operation: str, request_id: str) -> None:
        self._session = session
        self._options = session.options
        self._clock = session.options.clock
        self._gate = session.gate
        self._operation = operation
        self._request_id = request_id
        self._ticket: Ticket | None = None
        self._imposed = 0.0
        self.waited = 0.0

    def enter(self) -> Effects[None]:
        """Wait for permission to send one request. Raises RateLimitError if the wait is too long."""
        options = self._options
        yield from self._pace()
        arrived, holds = self._clock.monotonic(), 0
        while True:
            ticket = self._ticket = self._gate.enter(self._clock.monotonic())
            if ticket.place is Place.WAITING:
                # The wait for the requests in front, which end with their responses, is not imposed by a limit.
                patience = max(options.max_wait, 2 * (options.timeout or _PATIENCE))
                yield Queue(ticket, min(patience, _LONGEST_PATIENCE))
                self._give_up_queue(ticket)  # if it is still undecided
            now = self._clock.monotonic()
            if ticket.place is Place.PASSED:
                self.waited += now - arrived
                return
            wait = ticket.until - now
            if wait < _TICK:
                yield Sleep(max(0.0, wait))
                continue
            holds += 1
            if ticket.banned:
                raise self._held_back(KeyBannedError, _BANNED, "This key is banned", wait)
            waits = wait <= options.max_wait and holds <= options.max_retries + 1
            self._report(wait, refused=False, waits=waits)
            if not waits:
                raise self._held_back(RateLimitError, "rate_limit_exceeded", "The limit of this key is used up", wait)
            yield Sleep(wait)

    def settle(self, reply: Reply, limits: Limits, now: float) -> bool:
        """Inform the gate of a response, and return whether it describes the account's windows (D13, D14)."""
        ticket, self._ticket = self._ticket, None
        moves = not limits.of_address and (reply.status < 300 or reply.status == 304 or reply.status in _OF_THE_ACCOUNT)
        if ticket is not None and moves:
            self._gate.settle(ticket, now, limits, reply.status == 429)
        elif ticket is not None:
            self._gate.leave(ticket, now, charged=reply.status >= 500)
        return moves

    def leave(self, charged: bool = False) -> None:
        """Release the place at the gate; `charged` if the server may have counted the request."""
        if self._ticket is not None:
            self._gate.leave(self._ticket, self._clock.monotonic(), charged)
            self._ticket = None

    def refusal(self, body: bytes, pause: float, now: float, moved: bool) -> RateLimitError:
        """The exception for a 429. It imposes a wait until the gate reopens, or of `pause` if the gate ignored it."""
        record = read_error(body)
        message = self._session.target.key.redact(record.message) if record else "The server responded 429."
        code = record.code if record else ""
        if code == _BANNED:
            self._gate.ban(now + pause)
        self._imposed = self._gate.held_for(now) if moved else pause
        kind = KeyBannedError if code == _BANNED else RateLimitError
        return kind(code, message, 429, self._time_after(self._imposed))

    def wait_after(self, error: RateLimitError, last: bool) -> float:
        """Accept the wait after a 429, in seconds. Raises the error instead if the call does not wait."""
        wait = self._imposed
        waits = not last and wait <= self._options.max_wait and not isinstance(error, KeyBannedError)
        self._report(wait, refused=True, waits=waits)
        if not waits:
            raise error
        self.waited += wait
        return wait

    def _give_up_queue(self, ticket: Ticket) -> None:
        if self._gate.give_up(ticket):
            raise self._held_back(
                RateLimitError, "rate_limit_exceeded", "The requests before this one got no response in time", 0.0
            )

    def _pace(self) -> Effects[None]:
        if self._options.pacing is None:
            return
        wait = self._gate.reserve_slot(self._clock.monotonic(), self._options.pacing)
        try:
            if wait > 0:
                yield Sleep(wait)
                self.waited += wait
        finally:
            self._gate.use_slot()

    def _held_back(self, kind: type[RateLimitError], code: str, why: str, wait: float) -> RateLimitError:
        retry_at = self._time_after(wait)
        text = f"{why}; nothing was sent. Retry at {retry_at.isoformat(timespec='seconds')}, or raise max_wait."
        if kind is KeyBannedError:
            text = f"{why} until {retry_at.isoformat(timespec='seconds')} because requests continued after a 429."
        return kind(code, text, 429, retry_at, False)

    def _time_after(self, wait: float) -> datetime:
        return datetime.fromtimestamp(self._clock.now() + min(wait, LONGEST_WAIT), UTC)

    def _report(self, wait: float, refused: bool, waits: bool) -> None:
        log.info("%s: a limit imposes a wait of %.1f s (request %s)", self._operation, wait, self._request_id)
        event = RateLimitEvent(self._operation, wait, self._time_after(wait), refused, waits, self._request_id)
        notify(self._options.on_rate_limit, event)


def notify(hook: Callable[..., object] | None, event: Any) -> None:
    """Call a hook, if there is one. A faulty hook must not cost a call its result, least of all a cancel."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        log.exception("A hook failed (request %s)", event.request_id)
