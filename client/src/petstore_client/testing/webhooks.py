"""Webhooks of the fake service: their operations, and the delivery of signed messages to functions."""

import hmac
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import accumulate
from typing import Annotated, Any, get_args

import httpx2
import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict, replace

from petstore_client import v2
from petstore_client._limits import http_date
from petstore_client._types import Clock
from petstore_client.testing.changes import Fields, given, read, represent
from petstore_client.testing.faults import JSON, NO_STORE, Raw
from petstore_client.testing.shop import Operation, object_of
from petstore_client.testing.store import FIRST, LAST_ID, Place, Refusal, Store, Subscription

_MAX_WEBHOOKS, _MAX_ATTEMPTS, _MAX_EXCERPT = 20, 20, 200
_MAX_ORDERS, _MAX_BYTES = 100, 20_000  # of a message
_MAX_GRACE = 86_400  # seconds
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_TICK = 0.001  # seconds by which sums of times may differ
_EPOCH = datetime.fromtimestamp(0, UTC)
_RETRY_SECONDS, _MAX_RETRY_AFTER, _STOPPED_AFTER = (5, 30, 120, 600, 1800, 3600), 3600, timedelta(days=3)


class _Chosen(Fields):
    url: str | UnsetType = UNSET
    statuses: list[v2.Status] | UnsetType | None = UNSET
    state: v2.WebhookState | UnsetType = UNSET
    after: str | UnsetType = UNSET


class _Rotation(Fields):
    grace: Annotated[int, Meta(ge=0, le=_MAX_GRACE)] | None = None


def deliver(store: Store, clock: Clock) -> int:
    """Send all messages that are due, and return how many were sent."""
    return sum(_deliver(store, each, clock) for each in list(store.webhooks.values()))


def _deliver(store: Store, each: Subscription, clock: Clock) -> int:
    """Send the messages of one webhook until there is none, or one fails."""
    sent = 0
    while each in store.webhooks.values() and each.webhook.state == "active" and each.next_at < clock.now() + _TICK:
        store.track(clock.now())
        pending, selected = _pending(store, each), _selected(each)
        if each.history != store.history:
            place, kind = FIRST, "orders.reset"
            at = _EPOCH + timedelta(microseconds=each.place[1]) if each.place[1] else each.webhook.created_at
            data: dict[str, Any] = {"next": store.token_of(place)}
        elif pending:
            sent_orders = [replace(order, account=None) for _, order in pending[:_MAX_ORDERS]]
            sizes = accumulate(len(msgspec.json.encode(order)) for order in sent_orders)
            count = max(1, sum(size <= _MAX_BYTES for size in sizes))
            (place, last), kind, more = pending[count - 1], "orders.changed", count < len(pending)
            at, data = last.updated_at, {"orders": sent_orders[:count], "more": more, "next": store.token_of(place)}
            place = place if more else (*place[:2], LAST_ID)  # what changed at the same time was in the message
        else:
            if each.webhook.failing_since is not None:  # what has failed need not be sent any more
                each.failures, each.next_at, each.webhook = 0, 0.0, replace(each.webhook, failing_since=None)
            break
        history, body = store.history, _body(kind, at, data)
        name = f"{each.webhook.id} {each.replay} {history} {place} ".encode() + body
        url = each.webhook.url
        attempt, retry_after = _send(store, each, sha256(name).hexdigest()[:32], body, clock.now())
        sent += 1
        _record(each, attempt, retry_after, url)
        if _succeeded(attempt) and _selected(each) == selected:
            each.history, each.place = history, place
    return sent


def _pending(store: Store, each: Subscription) -> list[tuple[Place, v2.Order]]:
    """The orders that the webhook has not delivered yet."""
    changed = store.changed_after(each.place if each.history == store.history else FIRST)
    return [found for found in changed if found[1].status in (each.webhook.statuses or get_args(v2.Status))]


def _selected(each: Subscription) -> tuple[int, list[str] | None]:
    """What decides with the position which orders follow; a receiver may change it while it has a message."""
    return each.replay, each.webhook.statuses


def _body(kind: str, at: datetime, data: object) -> bytes:
    return msgspec.json.encode({"type": kind, "timestamp": at, "data": data})


def _send(store: Store, each: Subscription, number: str, body: bytes, now: float) -> tuple[v2.Attempt, float]:
    """Send a message; return the attempt, and the seconds of Retry-After."""
    at, message_id, url = datetime.fromtimestamp(now, UTC), f"msg_{number}", each.webhook.url
    signed = f"{message_id}.{int(now)}.".encode() + body
    generations = [each.generation, *([each.generation - 1] if each.previous_until > now + _TICK else [])]
    signatures = (hmac.digest(_secret(each, generation), signed, "sha256") for generation in generations)
    headers = {
        **JSON, "user-agent": "petstore-webhooks/fake", "webhook-id": message_id, "webhook-timestamp": str(int(now)),
        "webhook-signature": " ".join(f"v1,{b64encode(signature).decode()}" for signature in signatures),
    }  # fmt: skip
    try:
        if url not in store.receivers:
            raise httpx2.ConnectError(f"no function in `receivers` for {url}")
        found = store.receivers[url](headers, body)
    except httpx2.TransportError as error:
        return v2.Attempt(at=at, milliseconds=0, excerpt=f"no response: {error}"[:_MAX_EXCERPT]), 0.0
    response = found if isinstance(found, httpx2.Response) else httpx2.Response(204 if found is None else found)
    wait = _retry_after(response.headers.get("retry-after", ""), now)
    attempt = v2.Attempt(at=at, status=response.status_code, milliseconds=0, excerpt=_excerpt(response.content))
    return attempt, wait


def _excerpt(content: bytes) -> str:
    """The beginning of the text of a response, with escapes for what could control a terminal."""
    text = content[: 4 * _MAX_EXCERPT].decode("utf-8", "replace")[:_MAX_EXCERPT]
    return _UNSAFE.sub(_as_escape, text)[:_MAX_EXCERPT]


def _as_escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def _retry_after(text: str, now: float) -> float:
    """The seconds that Retry-After asks for, as a number or by a date; 0 if it has neither form."""
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    date = http_date(text)
    return 0.0 if date is None else max(0.0, date.timestamp() - now)


def _record(each: Subscription, attempt: v2.Attempt, retry_after: float, url: str) -> None:
    """Note an attempt at the URL, and what follows: nothing if it has failed and the webhook has another URL now."""
    webhook, state = each.webhook, each.webhook.state
    if webhook.url != url and not _succeeded(attempt):
        since = webhook.failing_since
    elif _succeeded(attempt):
        since, each.failures, each.next_at = None, 0, 0.0
    else:
        since = webhook.failing_since or attempt.at
        pause = max(_RETRY_SECONDS[min(each.failures, len(_RETRY_SECONDS) - 1)], min(retry_after, _MAX_RETRY_AFTER))
        each.failures, each.next_at = each.failures + 1, attempt.at.timestamp() + pause
        if attempt.at - since >= _STOPPED_AFTER and state == "active":
            state = "stopped"
        if attempt.status == 410:
            state = "ended"
    attempts = [*webhook.attempts, attempt][-_MAX_ATTEMPTS:]
    each.webhook = replace(webhook, state=state, failing_since=since, attempts=attempts)


def _succeeded(attempt: v2.Attempt) -> bool:
    return attempt.status is not None and 200 <= attempt.status < 300


def _secret(each: Subscription, generation: int) -> bytes:
    return sha256(f"{each.webhook.id} {generation}".encode()).digest()


def _list(store: Store, request: httpx2.Request, _: str, now: float) -> Raw:
    return represent(request, {"data": [_shown(store, each, now) for each in store.webhooks.values()]})


def _get(store: Store, request: httpx2.Request, webhook_id: str, now: float) -> Raw:
    return represent(request, _shown(store, _existing(store, webhook_id), now))


def _create(store: Store, request: httpx2.Request, _: str, now: float) -> Raw:
    chosen = given({name: value for name, value in object_of(request.content).items() if value is not None}, _Chosen)
    if "url" not in chosen:
        raise Refusal(400, "invalid_body", "The body lacks the field 'url'.")
    webhook_id, at = f"wh_{next(store.numbers):012}", datetime.fromtimestamp(now, UTC)
    webhook = v2.Webhook(id=webhook_id, url="", state="active", created_at=at, lag=0, attempts=[])
    created = Subscription(webhook, store.history, store.position_after("now"))
    _set(store, created, chosen)
    if len(store.webhooks) >= _MAX_WEBHOOKS:
        raise Refusal(409, "too_many_webhooks", f"There are {_MAX_WEBHOOKS} webhooks already.")
    store.webhooks[webhook_id] = created
    headers = {**JSON, "cache-control": "no-store", "location": f"webhooks/{webhook_id}"}
    return Raw(201, headers, pieces=_revealed(store, created, now).pieces)


def _update(store: Store, request: httpx2.Request, webhook_id: str, now: float) -> Raw:
    chosen = given(object_of(request.content), _Chosen)
    if chosen.keys() - {"state"}:
        store.require_scope("orders:read")
    changed = _existing(store, webhook_id, ended=False)
    _set(store, changed, chosen)
    return _uncached(_shown(store, changed, now))


def _set(store: Store, each: Subscription, values: dict[str, Any]) -> None:
    """Set fields of a webhook. Raises Refusal."""
    if not values.get("url", "https://").startswith("https://"):
        raise Refusal(400, "invalid_body", "The URL is refused: it must begin with https://.")
    if (after := values.pop("after", None)) is not None:
        place = FIRST if after == "beginning" else store.position_after(after)
        if each.history == store.history:  # else a reset is due, which is not skipped
            each.place = place
        each.replay += 1
    if "statuses" in values:
        values["statuses"] = [name for name in get_args(v2.Status) if name in (values["statuses"] or ())] or None
    resumed = values.get("state", each.webhook.state) != each.webhook.state
    if resumed:
        values["failing_since"] = None
    if resumed or after is not None or values.keys() & {"url", "statuses"}:
        each.failures, each.next_at = 0, 0.0
    elif values.get("state") == "active":  # another attempt at once
        each.next_at = 0.0
    each.webhook = replace(each.webhook, **values)


def _delete(store: Store, request: httpx2.Request, webhook_id: str, now: float) -> Raw:
    _existing(store, webhook_id)
    del store.webhooks[webhook_id]
    return Raw(204, {})


def _ping(store: Store, request: httpx2.Request, webhook_id: str, now: float) -> Raw:
    pinged = _existing(store, webhook_id, ended=False)
    body = _body("ping", datetime.fromtimestamp(int(now), UTC), {})
    return _uncached(_whole(_send(store, pinged, f"{next(store.numbers):032x}", body, now)[0]))


def _rotate(store: Store, request: httpx2.Request, webhook_id: str, now: float) -> Raw:
    empty = request.content.strip() in (b"", b"null")
    grace = None if empty else read(object_of(request.content), _Rotation).grace
    rotated = _existing(store, webhook_id, ended=False)
    rotated.generation += 1
    rotated.previous_until = int(now) + (_MAX_GRACE if grace is None else grace)
    return _revealed(store, rotated, now)


def _existing(store: Store, webhook_id: str, *, ended: bool = True) -> Subscription:
    """The webhook with this identifier, which may have `ended`. Raises Refusal."""
    found = store.webhooks.get(webhook_id)
    if found is None:
        raise Refusal(404, "webhook_not_found", f"There is no webhook {webhook_id}.")
    if found.webhook.state == "ended" and not ended:
        raise Refusal(409, "webhook_ended", f"Webhook {webhook_id} has ended; delete it, and create another one.")
    return found


def _shown(store: Store, each: Subscription, now: float) -> v2.Webhook:
    webhook = each.webhook
    pending = [] if webhook.state == "ended" else _pending(store, each)
    lag = max(0, int(now - pending[0][1].updated_at.timestamp())) if pending else 0
    created_at, attempts = webhook.created_at.replace(microsecond=0), [_whole(each) for each in webhook.attempts]
    since = webhook.failing_since and webhook.failing_since.replace(microsecond=0)
    return replace(webhook, lag=lag, created_at=created_at, failing_since=since, attempts=attempts)


def _whole(attempt: v2.Attempt) -> v2.Attempt:
    """The attempt with its time in whole seconds, as all times of a webhook are shown."""
    return replace(attempt, at=attempt.at.replace(microsecond=0))


def _revealed(store: Store, each: Subscription, now: float) -> Raw:
    secret = f"whsec_{b64encode(_secret(each, each.generation)).decode()}"
    return _uncached(v2.RevealedWebhook(**asdict(_shown(store, each, now)), secret=secret))


def _uncached(content: object) -> Raw:
    return Raw(200, NO_STORE, pieces=(msgspec.json.encode(content),))


_WEBHOOK = "/webhooks/(?P<id>[^/]*)"
SCOPE = "webhooks:manage"
ROUTES: tuple[tuple[str, str, Operation], ...] = (
    ("v2 GET /webhooks", SCOPE, _list),
    ("v2 POST /webhooks", f"{SCOPE} orders:read", _create),
    (f"v2 GET {_WEBHOOK}", SCOPE, _get),
    (f"v2 PATCH {_WEBHOOK}", SCOPE, _update),
    (f"v2 DELETE {_WEBHOOK}", SCOPE, _delete),
    (f"v2 POST {_WEBHOOK}/ping", SCOPE, _ping),
    (f"v2 POST {_WEBHOOK}/rotate", SCOPE, _rotate),
)
