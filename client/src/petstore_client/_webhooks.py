"""Webhooks of version 2: their methods in both clients. No I/O."""

import builtins
from collections.abc import Collection
from typing import Any, SupportsIndex

from petstore_client import _arguments as arguments
from petstore_client import _operations as operations
from petstore_client import v2
from petstore_client._call import Call, Operation
from petstore_client._effects import Effects
from petstore_client._methods import Runner, awaited
from petstore_client._types import Record

_ALL, _ONE = "/webhooks", "/webhooks/{id}"
_CREATED = "The webhook may have been created, and its secret is lost: list the webhooks, and rotate or delete it."
_CHANGED = "It may have been applied; repeat the call to find out."
_SENT = "The ping may have been sent."
_ROTATED = "The secret may have been replaced, and the new one is lost: rotate again before the end of the grace."

_LIST = Operation("listWebhooks", "GET", _ALL, {200}, "v2")
_CREATE = Operation("createWebhook", "POST", _ALL, {201}, "v2", _CREATED, repeatable=False)
_GET = Operation("getWebhook", "GET", _ONE, {200}, "v2")
_UPDATE = Operation("updateWebhook", "PATCH", _ONE, {200}, "v2", _CHANGED)
_DELETE = Operation("deleteWebhook", "DELETE", _ONE, {204}, "v2", _CHANGED)
_PING = Operation("pingWebhook", "POST", f"{_ONE}/ping", {200}, "v2", _SENT, repeatable=False)
_ROTATE = Operation("rotateWebhook", "POST", f"{_ONE}/rotate", {200}, "v2", _ROTATED, repeatable=False)

Statuses = v2.Status | Collection[v2.Status] | None


class _Webhooks(Record, frozen=True, kw_only=True, gc=False):
    """The response of `listWebhooks`."""

    data: list[v2.Webhook]


class Webhooks:
    """The webhooks of the account (experimental). The key needs the scope `webhooks:manage`.

    The errors of a call are those of `Client.list_orders`, and those that its method names. Where the store has not
    turned webhooks on, each is PermissionDeniedError `webhooks_disabled`.
    """

    def __init__(self, client: Runner) -> None:
        self._client = client

    def create(
        self, url: str, *, statuses: Statuses = None, state: v2.WebhookState = "active", after: str = "now"
    ) -> v2.RevealedWebhook:
        """Create a webhook, and return it with its secret, which is not shown again.

        url: an https:// URL, which has public addresses only.
        statuses: the statuses of the orders to send, such as "cancelled", or several; None means all. That an order
            leaves them is not sent.
        state: "active", or "paused" until it is resumed.
        after: "now", what changes from now on; "beginning", every order once, and then every change; or the `next` of
            `list_changes` or of a message.

        The key needs the scope `orders:read` as well. The request is repeated only if the service has not seen it, or
        refused it because of a limit: after a lost response `may_have_been_applied` is True, so look at `list()`.

        Raises PermissionDeniedError, APIStatusError 400 `invalid_body` (also for a refused URL) or `invalid_cursor`,
        ConflictError `too_many_webhooks`, ChangesResetError.
        """
        call = self._call(
            _CREATE, url=url, statuses=v2.UNSET if statuses is None else statuses, state=state, after=after
        )
        return self._client._run(operations.get(call, v2.RevealedWebhook))

    def get(self, webhook_id: str) -> v2.Webhook:
        """One webhook, with its last attempts. Raises NotFoundError."""
        return self._client._run(operations.get(self._call(_GET, webhook_id), v2.Webhook))

    def update(
        self,
        webhook_id: str,
        *,
        url: str | v2.UnsetType = v2.UNSET,
        statuses: Statuses | v2.UnsetType = v2.UNSET,
        state: v2.WebhookState | v2.UnsetType = v2.UNSET,
        after: str | v2.UnsetType = v2.UNSET,
    ) -> v2.Webhook:
        """Change a webhook. UNSET of `petstore_client.v2`, the default, leaves a field.

        url, statuses: as for `create`. The position in the changes stays, and the next attempt is made at once.
        state: "paused", or "active" to resume a webhook that was paused or stopped; it goes on where it was.
        after: as for `create`; what was delivered after this position is delivered again.

        To set more than the state, the key needs the scope `orders:read` as well.

        Raises PermissionDeniedError, NotFoundError, APIStatusError 400 `invalid_body` or `invalid_cursor`,
        ConflictError `webhook_ended`, ChangesResetError.
        """
        call = self._call(_UPDATE, webhook_id, url=url, statuses=statuses, state=state, after=after)
        return self._client._run(operations.get(call, v2.Webhook))

    def delete(self, webhook_id: str) -> None:
        """Delete a webhook. A repetition that does not find it, after a lost response, is a success.

        Raises NotFoundError.
        """
        return self._client._run(operations.end(self._call(_DELETE, webhook_id), "webhook_not_found"))

    def ping(self, webhook_id: str) -> v2.Attempt:
        """Send a message `{"type": "ping", …}`, also while the webhook is paused or stopped; return what came back.

        It is repeated as `create` is. Raises NotFoundError, ConflictError `webhook_ended`.
        """
        return self._client._run(operations.get(self._call(_PING, webhook_id), v2.Attempt))

    def rotate(self, webhook_id: str, *, grace: SupportsIndex = 86_400) -> v2.RevealedWebhook:
        """Replace the secret, and return the webhook with the new one.

        grace: seconds for which messages have a signature with the old secret too, from 0 to 86,400.

        It is repeated as `create` is: another rotation would end the secret that the receiver has. Raises
        NotFoundError, APIStatusError 400 `invalid_body`, ConflictError `webhook_ended`.
        """
        call = self._call(_ROTATE, webhook_id, grace=grace)
        return self._client._run(operations.get(call, v2.RevealedWebhook))

    def list(self) -> builtins.list[v2.Webhook]:
        """All webhooks of the account, oldest first."""
        return self._client._run(_listed(self._call(_LIST)))

    def _call(self, operation: Operation, webhook_id: object = "", **fields: object) -> Call:
        """A call with these fields of a webhook in its body. Raises TypeError, ConfigurationError (a ValueError)."""
        identifier = arguments.webhook_id(webhook_id) if operation.path != _ALL else None
        content = arguments.webhook(fields) if fields else None
        call = Call(self._client._session(), operation, identifier)
        if content is not None:
            call.content = content
            call.headers["Content-Type"] = "application/json"
        return call


def _listed(call: Call) -> Effects[builtins.list[v2.Webhook]]:
    return (yield from operations.get(call, _Webhooks)).data


class AsyncWebhooks:
    """The webhooks of the account for asyncio. The arguments and errors are those of `Webhooks`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    list, create, get = awaited(Webhooks.list), awaited(Webhooks.create), awaited(Webhooks.get)
    update, delete = awaited(Webhooks.update), awaited(Webhooks.delete)
    ping, rotate = awaited(Webhooks.ping), awaited(Webhooks.rotate)
    _call = Webhooks._call
