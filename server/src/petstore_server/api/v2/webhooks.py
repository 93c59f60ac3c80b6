"""Webhooks of version 2: an account's own, to which changes of the orders that it sees are delivered (D24)."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from petstore_server.api.errors import InvalidBody, Overloaded, WebhooksDisabled
from petstore_server.api.representation import answer, json_response, uncached
from petstore_server.api.routes import Call, Held, Operation, Route
from petstore_server.api.v2 import bodies
from petstore_server.api.v2.input import NO_PARAMETERS
from petstore_server.domain.errors import (
    AccountClosed,
    InsufficientScope,
    ServiceUnavailable,
    UrlRefused,
    WebhookNotFound,
)
from petstore_server.domain.keys import Scope
from petstore_server.domain.timestamps import format_unix
from petstore_server.domain.webhooks import Attempt, Webhook
from petstore_server.operations.webhooks import Revealed, Start, WebhookService
from petstore_server.server.messages import Response

MAX_PINGS = 4  # of an account that are under way in a process

_PATH = "/v2/webhooks"
_ONE = f"{_PATH}/{{webhookId}}"
_ID = re.compile("wh_[0-9A-Za-z]{1,40}", re.ASCII)


def routes(service: WebhookService, clock: Callable[[], float]) -> list[Route]:
    """The routes of webhooks. `clock` gives Unix seconds."""
    handlers, scope = _Handlers(service, clock), Scope.WEBHOOKS_MANAGE
    list_webhooks = Operation("v2.listWebhooks", scope, handlers.list_webhooks)
    create_webhook = Operation("v2.createWebhook", scope, handlers.create_webhook)
    get_webhook = Operation("v2.getWebhook", scope, handlers.get_webhook)
    update_webhook = Operation("v2.updateWebhook", scope, handlers.update_webhook)
    delete_webhook = Operation("v2.deleteWebhook", scope, handlers.delete_webhook)
    one = {"GET": get_webhook, "HEAD": get_webhook, "PATCH": update_webhook, "DELETE": delete_webhook}
    return [
        Route(_PATH, {"GET": list_webhooks, "HEAD": list_webhooks, "POST": create_webhook}),
        Route(_ONE, one),
        Route(f"{_ONE}/ping", {"POST": Operation("v2.pingWebhook", scope, handlers.ping_webhook)}),
        Route(f"{_ONE}/rotate", {"POST": Operation("v2.rotateWebhook", scope, handlers.rotate_webhook)}),
    ]


class _Handlers:
    """Every operation also raises InvalidParameter, and WebhooksDisabled."""

    def __init__(self, service: WebhookService, clock: Callable[[], float]) -> None:
        self._service = service
        self._clock = clock
        self._pings = Counter[int]()  # that are under way, by account

    async def list_webhooks(self, call: Call) -> Response:
        """All webhooks of the account, oldest first."""
        self._check(call)
        webhooks = await self._service.store.webhooks.of_account(call.caller.account_id)
        shown = [await self._shown(webhook) for webhook in webhooks]
        return answer(call.request.headers, msgspec.json.encode({"data": shown}))

    async def get_webhook(self, call: Call) -> Response:
        """One webhook of the account. Raises WebhookNotFound."""
        self._check(call)
        webhook = await self._service.store.webhooks.find(call.parameter, call.caller.account_id)
        return answer(call.request.headers, msgspec.json.encode(await self._shown(webhook)))

    async def create_webhook(self, call: Call) -> Held:
        """Create a webhook, and show its secret.

        Raises UnsupportedMediaType, InvalidBody, InsufficientScope, InvalidToken, ChangesReset, TooManyWebhooks.
        """
        self._check(call)
        bodies.check_media_type(call.request.headers)
        _require_reading(call)
        return Held(self._create(call, _chosen(call, new=True)))

    async def _create(self, call: Call, chosen: dict[str, Any]) -> Response:
        caller = call.caller
        account = caller.account_id, caller.account
        try:
            created = await self._service.create(account, caller.owner, actor=call.actor(self._clock()), **chosen)
        except UrlRefused as error:
            raise InvalidBody(error.message) from None
        except AccountClosed as error:  # since the key was looked at; the next request will be 401
            raise ServiceUnavailable(error.message) from None
        location = b"Cache-Control: no-store\r\nLocation: webhooks/%s\r\n" % created.webhook.id.encode()
        body = await self._revealed(created)
        return json_response(body, location, 201)

    async def update_webhook(self, call: Call) -> Held:
        """Change the fields given (RFC 7396).

        Raises UnsupportedMediaType, InvalidBody, InsufficientScope, WebhookNotFound, WebhookEnded, InvalidToken,
        ChangesReset.
        """
        self._check(call)
        bodies.check_media_type(call.request.headers, patch=True)
        chosen = _chosen(call, new=False)
        if chosen.keys() - {"state"}:  # which decides where orders are sent, or which
            _require_reading(call)
        return Held(self._update(call, chosen))

    async def _update(self, call: Call, chosen: dict[str, Any]) -> Response:
        actor, account_id = call.actor(self._clock()), call.caller.account_id
        try:
            webhook = await self._service.edit(call.parameter, actor, account_id=account_id, **chosen)
        except UrlRefused as error:
            raise InvalidBody(error.message) from None
        return uncached(call.request.headers, msgspec.json.encode(await self._shown(webhook)))

    async def delete_webhook(self, call: Call) -> Response:
        """Delete a webhook. Raises WebhookNotFound."""
        self._check(call)
        actor = call.actor(self._clock())
        await self._service.store.webhooks.delete(call.parameter, actor, call.caller.account_id)
        return Response(204)

    async def ping_webhook(self, call: Call) -> Held:
        """Send a ping, and show the attempt. Raises WebhookNotFound, WebhookEnded, Overloaded."""
        self._check(call)
        if self._pings[call.caller.account_id] >= MAX_PINGS:
            raise Overloaded
        return Held(self._ping(call))

    async def _ping(self, call: Call) -> Response:
        account_id = call.caller.account_id
        self._pings[account_id] += 1
        try:
            exchange = await self._service.ping(call.parameter, call.actor(self._clock()), account_id)
        finally:
            self._pings[account_id] -= 1
        return uncached(call.request.headers, msgspec.json.encode(_attempt(exchange.attempt)))

    async def rotate_webhook(self, call: Call) -> Response:
        """Replace the secret, and show the new one.

        Raises UnsupportedMediaType, InvalidBody, WebhookNotFound, WebhookEnded.
        """
        self._check(call)
        if call.request.body:
            bodies.check_media_type(call.request.headers)
        grace = bodies.read_grace(call.request.body)
        actor = call.actor(self._clock())
        rotated = await self._service.rotate(call.parameter, grace, actor, call.caller.account_id)
        return uncached(call.request.headers, await self._revealed(rotated))

    def _check(self, call: Call) -> None:
        """Raise WebhooksDisabled, InvalidParameter, WebhookNotFound."""
        if not self._service.enabled:
            raise WebhooksDisabled
        NO_PARAMETERS.read(call.request.query)
        if call.parameter and not _ID.fullmatch(call.parameter):  # what else it may hold goes neither back nor on
            raise WebhookNotFound("with this identifier")

    async def _shown(self, webhook: Webhook) -> dict[str, Any]:
        """A webhook as the interface shows it."""
        fields: dict[str, Any] = {"id": webhook.id, "url": webhook.url}
        if webhook.statuses:
            fields["statuses"] = webhook.statuses
        fields |= {"state": str(webhook.state), "createdAt": format_unix(webhook.created_at)}
        fields["lag"] = await self._service.lag(webhook, self._clock())
        if webhook.failing_since is not None:
            fields["failingSince"] = format_unix(webhook.failing_since)
        return fields | {"attempts": [_attempt(attempt) for attempt in webhook.attempts]}

    async def _revealed(self, revealed: Revealed) -> bytes:
        return msgspec.json.encode(await self._shown(revealed.webhook) | {"secret": revealed.secret})


def _require_reading(call: Call) -> None:
    """Raise InsufficientScope unless the key may read orders: they will be sent to an address of its choice."""
    if Scope.ORDERS_READ not in call.caller.scopes:
        raise InsufficientScope(Scope.ORDERS_READ)


def _chosen(call: Call, *, new: bool) -> dict[str, Any]:
    """What the body chooses, by the names of `WebhookService.create`. Raises InvalidBody."""
    values = bodies.read_webhook(call.request.body, new=new)
    after = values.pop("after", None)
    return values if after is None else values | {"start": Start(after)}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    fields = attempt._asdict() | {"at": format_unix(attempt.at)}
    return fields if attempt.status is not None else {name: fields[name] for name in fields if name != "status"}
