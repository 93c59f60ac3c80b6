"""Webhooks: followers of the changes that the service runs for partners (D24).

A webhook has one position in the order of changes. A delivery reads the orders after it, as they are at that time, so
there is no queue, and an order that changes again while a receiver is down is delivered once.
"""

import hmac
from base64 import b64encode
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from petstore_server.domain.errors import WebhookEnded
from petstore_server.domain.lists import Filters, Position
from petstore_server.domain.orders import Status
from petstore_server.domain.timestamps import DAY, HOUR, MINUTE
from petstore_server.domain.tokens import FIRST
from petstore_server.domain.transitions import Transition

MAX_WEBHOOKS = 1000  # of a store
MAX_WEBHOOKS_OF_ACCOUNT = 20
MAX_ATTEMPTS = 20  # that are kept of each webhook
MAX_EXCERPT = 200  # characters
MAX_GRACE = DAY  # seconds for which the secret before a rotation signs as well

RETRY_SECONDS = (5, 30, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR)
"""The pauses after a first failure, a second one, and so on; the last is repeated."""

MAX_RETRY_AFTER = HOUR  # seconds
RETRY_SPREAD = 0.2  # the part of a pause that is added to it at most, at random
MAX_PAUSE = max(*RETRY_SECONDS, MAX_RETRY_AFTER) * (1 + RETRY_SPREAD) + MINUTE
"""The longest time from an attempt to the next one, with the attempt itself and different clocks of two hosts."""

STOPPED_AFTER = 3 * DAY  # seconds from the first failure after the last success

_SECRET_PREFIX = "whsec_"  # noqa: S105 - of the specification
_GONE = 410


class WebhookState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    """By the partner or an operator, until it is resumed."""
    STOPPED = "stopped"
    """By the service, after STOPPED_AFTER of failures, until it is resumed."""
    ENDED = "ended"
    """For good: the receiver has answered 410, or the account is closed."""


class Attempt(NamedTuple):
    """An attempt to deliver a message: when it began (Unix seconds), and how long it took.

    `status` is that of the response, None without one. `excerpt` is the beginning of the response's text, or why there
    was no response.
    """

    at: float
    status: int | None
    milliseconds: int
    excerpt: str

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook of an account, which delivers the orders of `owner`; all orders if that is None (D21).

    `statuses` selects orders by their status, all if it is empty. `position` is where the next message begins in the
    history of changes that `history` names, and `replay` the number of times that the partner has set it. `generation`
    is that of the secret; the one before signs until `previous_until`. Times are Unix seconds. While its account is
    `suspended`, it delivers nothing.
    """

    id: str
    account_id: int
    account: str
    url: str
    created_at: float
    owner: int | None = None
    statuses: tuple[Status, ...] = ()
    state: WebhookState = WebhookState.ACTIVE
    history: str = ""
    position: Position = FIRST
    replay: int = 0
    generation: int = 1
    previous_until: float = 0.0
    next_at: float = 0.0
    failures: int = 0
    failing_since: float | None = None
    delivered_at: float | None = None
    attempts: tuple[Attempt, ...] = ()
    suspended: bool = False

    def fields(self) -> dict[str, Any]:
        """Return what can change, as the audit log records it."""
        values = {"url": self.place, "statuses": [*map(str, self.statuses)], "state": str(self.state)}
        return {**values, "replay": self.replay, "generation": self.generation}

    @property
    def place(self) -> str:
        """The URL without its query, which may be a secret."""
        return urlsplit(self.url)._replace(query="").geturl()

    @property
    def filters(self) -> Filters:
        """What selects the orders that it delivers."""
        return Filters(statuses=frozenset(self.statuses), owner=self.owner)

    def continues(self, sent: "Webhook") -> bool:
        """Whether it goes on after what was read for it as it was when `sent`.

        It does not if the partner has set another position meanwhile, or statuses that orders before it may have.
        """
        return (self.replay, self.statuses) == (sent.replay, sent.statuses)

    @property
    def delivers(self) -> bool:
        return self.state is WebhookState.ACTIVE and not self.suspended


class Message(NamedTuple):
    """A message for the receiver of a webhook. `position` and `history` are those of the webhook after its delivery.

    `more`: there is at least one more message.
    """

    id: str
    body: bytes
    history: str
    position: Position
    more: bool


def message_id(webhook: Webhook, history: str, position: Position, body: bytes) -> str:
    """Identify a message: the same for every attempt with the same bytes, another one after a replay or a restore."""
    place = f"{webhook.id} {webhook.replay} {history} {position.value} {position.id} ".encode()
    return f"msg_{sha256(place + body).hexdigest()[:32]}"


def edit(
    *,
    url: str | None = None,
    statuses: tuple[Status, ...] | None = None,
    state: WebhookState | None = None,
    start: tuple[str, Position] | None = None,
) -> Transition[Webhook]:
    """Change what is not None. `start` is a history and a position from which on everything is delivered again.

    A change of `url` or `statuses`, a new start, and ACTIVE end the pause between attempts; ACTIVE also ends a stop.
    Raises WebhookEnded.
    """

    def apply(webhook: Webhook) -> Webhook:
        given = {"url": url, "statuses": statuses}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if changes or start is not None:
            changes |= {"next_at": 0.0, "failures": 0}
        if start is not None:
            changes |= {"history": start[0], "position": start[1], "replay": webhook.replay + 1}
        if state is not None and state is not webhook.state:
            changes |= {"state": state, "next_at": 0.0, "failures": 0, "failing_since": None}
        elif state is WebhookState.ACTIVE:
            changes["next_at"] = 0.0
        return replace(require_not_ended(webhook), **changes)

    return Transition("webhook.edit", apply)


def rotate(previous_until: float) -> Transition[Webhook]:
    """Begin the next generation of the secret; the one before signs until then (Unix seconds). Raises WebhookEnded."""

    def apply(webhook: Webhook) -> Webhook:
        next_generation = require_not_ended(webhook).generation + 1
        return replace(webhook, generation=next_generation, previous_until=previous_until)

    return Transition("webhook.rotate", apply)


def require_not_ended(webhook: Webhook) -> Webhook:
    """Return the webhook. Raises WebhookEnded."""
    if webhook.state is WebhookState.ENDED:
        raise WebhookEnded(webhook.id)
    return webhook


def attempted(
    webhook: Webhook, message: Message, sent: Webhook, attempt: Attempt, retry_after: float | None, spread: float
) -> Webhook:
    """The webhook after an attempt to deliver the message, which was made for the webhook as it was when `sent`.

    `retry_after` is what the receiver asks for in seconds, and `spread` a random number from 0 to 1.
    """
    webhook = replace(webhook, attempts=(*webhook.attempts, attempt)[-MAX_ATTEMPTS:])
    if attempt.succeeded:
        webhook = replace(webhook, next_at=0.0, failures=0, failing_since=None, delivered_at=attempt.at)
        if webhook.continues(sent):
            webhook = replace(webhook, history=message.history, position=message.position)
        return webhook
    if webhook.url != sent.url:  # the partner has set another one meanwhile, which has not failed
        return webhook
    since = attempt.at if webhook.failing_since is None else min(webhook.failing_since, attempt.at)
    pause = max(RETRY_SECONDS[min(webhook.failures, len(RETRY_SECONDS) - 1)], min(retry_after or 0, MAX_RETRY_AFTER))
    next_at = attempt.at + attempt.milliseconds / 1000 + pause * (1 + RETRY_SPREAD * spread)
    webhook = replace(webhook, failures=webhook.failures + 1, failing_since=since, next_at=next_at)
    if attempt.status == _GONE:
        return replace(webhook, state=WebhookState.ENDED)
    if webhook.state is WebhookState.ACTIVE and attempt.at - since >= STOPPED_AFTER:
        return replace(webhook, state=WebhookState.STOPPED)
    return webhook


class SigningSecrets:
    """Derives the secrets of webhooks from one text, so that none is stored. `digest` identifies the text."""

    def __init__(self, text: str) -> None:
        """`text` is that of PETSTORE_WEBHOOK_SECRET."""
        self._derive = partial(hmac.digest, text.encode(), digest="sha256")
        self.digest = self._derive(msg=b"webhook secrets").hex()

    def shown(self, webhook: Webhook) -> str:
        """The secret of the present generation, as receivers get it."""
        return _SECRET_PREFIX + b64encode(self._secret(webhook.id, webhook.generation)).decode()

    def sign(self, webhook: Webhook, message_id: str, body: bytes, now: float) -> str:
        """The value of webhook-signature at `now` (Unix seconds; Standard Webhooks 1.0.0)."""
        generations = [webhook.generation]
        if webhook.previous_until > now:
            generations.append(webhook.generation - 1)
        signed = f"{message_id}.{int(now)}.".encode() + body
        return " ".join(_signature(self._secret(webhook.id, generation), signed) for generation in generations)

    def _secret(self, webhook_id: str, generation: int) -> bytes:
        return self._derive(msg=f"{webhook_id} {generation}".encode())


def _signature(secret: bytes, signed: bytes) -> str:
    return "v1," + b64encode(hmac.digest(secret, signed, "sha256")).decode()
