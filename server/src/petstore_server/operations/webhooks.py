"""Webhooks: what partners do over the API, and operators in the command line and the console (D24)."""

import asyncio
import secrets
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from petstore_server.domain import webhooks as rules
from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import InvalidInput, ServiceUnavailable, UrlRefused
from petstore_server.domain.keys import new_identifier
from petstore_server.domain.lists import BY_CHANGE, PageQuery, Position
from petstore_server.domain.orders import INT64_MAX, Status
from petstore_server.domain.timestamps import format_unix
from petstore_server.domain.tokens import FIRST, history_of, position_after
from petstore_server.domain.transitions import Transition, unless_changed
from petstore_server.domain.webhooks import SigningSecrets, Webhook, WebhookState
from petstore_server.store import Store
from petstore_server.store.search import position_of
from petstore_server.webhooks.addresses import Addresses, AddressRefused

if TYPE_CHECKING:
    from petstore_server.webhooks.sending import Exchange, Sender

NOW, BEGINNING = "now", "beginning"  # values of `after`, next to tokens of changes

_LOOKUP_SECONDS = 3.0  # for which a new URL waits for its name; at a delivery it is looked up again
_OFF = "webhooks are off: PETSTORE_WEBHOOK_SECRET is not set"


class Start(NamedTuple):
    """Where a webhook begins: `after` a token of changes, NOW or BEGINNING; or `since` a time in Unix seconds."""

    after: str = NOW
    since: float | None = None


_FROM_NOW = Start()


class Revealed(NamedTuple):
    """A webhook with its secret, which is not shown again."""

    webhook: Webhook
    secret: str


class WebhookService:
    """The webhooks of one store. With an `account_id`, only those of this account exist.

    `sender` is None if webhooks are off (PETSTORE_WEBHOOK_SECRET is not set).
    """

    def __init__(self, store: Store, addresses: Addresses, sender: "Sender | None") -> None:
        self.store = store
        self._addresses = addresses
        self._sender = sender

    @property
    def enabled(self) -> bool:
        """Whether PETSTORE_WEBHOOK_SECRET is set."""
        return self._sender is not None

    @property
    def sender(self) -> "Sender":
        """What sends messages. Raises ServiceUnavailable without PETSTORE_WEBHOOK_SECRET."""
        if self._sender is None:
            raise ServiceUnavailable(_OFF)
        return self._sender

    @property
    def signing(self) -> SigningSecrets:
        """What derives the secrets. Raises ServiceUnavailable without PETSTORE_WEBHOOK_SECRET."""
        return self.sender.secrets

    async def create(
        self,
        account: tuple[int, str],
        owner: int | None,
        url: str,
        actor: Actor,
        *,
        statuses: tuple[Status, ...] = (),
        state: WebhookState = WebhookState.ACTIVE,
        start: Start = _FROM_NOW,
    ) -> Revealed:
        """Create a webhook of an account, given by its id and name, which delivers the orders of `owner`.

        Raises UrlRefused, InvalidToken, ChangesReset, TooManyWebhooks, AccountClosed, ServiceUnavailable;
        InvalidInput for a start in the future.
        """
        signing = self.signing
        await self._check_url(url)
        history, position = await self._position(start, owner, actor.at)
        identity = new_identifier("wh_", secrets.randbelow), *account, url, actor.at
        webhook = Webhook(*identity, owner, statuses, state, history, position)
        return Revealed(await self.store.webhooks.create(webhook, signing.digest, actor), signing.shown(webhook))

    async def create_for(self, name: str, url: str, actor: Actor, statuses: tuple[Status, ...] = ()) -> Revealed:
        """Create a webhook of the account of this name. Raises what `create` raises, and AccountNotFound."""
        account = await self.store.accounts.find(name)
        owner = account.orders.owner(account.id)
        return await self.create((account.id, account.name), owner, url, actor, statuses=statuses)

    async def edit(
        self,
        webhook_id: str,
        actor: Actor,
        *,
        account_id: int | None = None,
        url: str | None = None,
        statuses: tuple[Status, ...] | None = None,
        state: WebhookState | None = None,
        start: Start | None = None,
        seen: str | None = None,
    ) -> Webhook:
        """Change what is not None. A start skips no reset, and one `since` a time nothing that is not delivered.

        Raises what `create` raises, WebhookNotFound, WebhookEnded, and ChangedMeanwhile if the state is another one
        than in the version `seen`.
        """
        webhook = rules.require_not_ended(await self.store.webhooks.find(webhook_id, account_id))
        if url is not None:
            await self._check_url(url)
        place = None if start is None else await self._position(start, webhook.owner, actor.at)
        if place is not None and start is not None:
            place = _without_gaps(webhook, start, *place)
        transition = rules.edit(url=url, statuses=statuses, state=state, start=place)
        return await self._change(webhook, unless_changed(transition, seen, ("state",)), actor)

    async def rotate(
        self, webhook_id: str, grace: int, actor: Actor, account_id: int | None = None, seen: str | None = None
    ) -> Revealed:
        """Replace the secret; the old one signs as well for `grace` seconds. `seen` is the version that was shown.

        Raises WebhookNotFound, WebhookEnded, WebhookSecretChanged, ChangedMeanwhile, ServiceUnavailable.
        """
        await self.store.webhooks.use_secret(self.signing.digest)
        webhook = await self.store.webhooks.find(webhook_id, account_id)
        rotate = unless_changed(rules.rotate(int(actor.at) + grace), seen, ("generation",))
        after = await self._change(webhook, rotate, actor)
        return Revealed(after, self.signing.shown(after))

    async def rotate_all(self, actor: Actor) -> list[Revealed]:
        """Take another PETSTORE_WEBHOOK_SECRET; every webhook gets a new secret. Raises ServiceUnavailable."""
        changed = await self.store.webhooks.rotate_all(self.signing.digest, actor)
        return [Revealed(webhook, self.signing.shown(webhook)) for webhook in changed]

    async def ping(self, webhook_id: str, actor: Actor, account_id: int | None = None) -> "Exchange":
        """Send a ping, also while the webhook is paused or stopped; return what was sent and what came back.

        Raises WebhookNotFound, WebhookEnded, WebhookSecretChanged, ServiceUnavailable.
        """
        await self.store.webhooks.use_secret(self.signing.digest)
        webhook = rules.require_not_ended(await self.store.webhooks.find(webhook_id, account_id))
        body = msgspec.json.encode({"type": "ping", "timestamp": format_unix(actor.at), "data": {}})
        exchange = await self.sender.send(webhook, f"msg_{secrets.token_hex(16)}", body)
        await self.store.webhooks.record_ping(webhook, exchange.attempt.status, actor)
        return exchange

    async def lag(self, webhook: Webhook, now: float) -> int:
        """The age in seconds of the first change that is not delivered yet; 0 if there is none, or none is known.

        To find one that `statuses` select might take long: then it is the time for which the webhook fails. `now` is in
        Unix seconds.
        """
        if webhook.state is WebhookState.ENDED:
            return 0
        clock = await self.store.search.change_clock()
        known = webhook.history == history_of(clock.epoch, webhook.owner)
        query = PageQuery(webhook.filters, BY_CHANGE, 1, webhook.position if known else FIRST)
        page = await self.store.search.page(query)
        if page.rows:
            since: float | None = (position_of(page.rows[0], BY_CHANGE.field).value or 0) / 1_000_000
        else:
            since = None if page.next is None else webhook.failing_since
        return 0 if since is None else max(0, int(now - since))

    async def _change(self, webhook: Webhook, transition: Transition[Webhook], actor: Actor) -> Webhook:
        return await self.store.webhooks.change(webhook.id, transition, actor, webhook.account_id)

    async def _check_url(self, url: str) -> None:
        """Raise UrlRefused if a webhook may not send to the URL. A name without an address may get one later."""
        try:
            destination = self._addresses.destination(url)
            await asyncio.sleep(0)  # before it first waits, a request runs outside of a task (`server/eager.py`)
            async with asyncio.timeout(_LOOKUP_SECONDS):
                await self._addresses.check(destination)
        except AddressRefused as error:
            raise UrlRefused(str(error)) from None
        except TimeoutError:
            return

    async def _position(self, start: Start, owner: int | None, now: float) -> tuple[str, Position]:
        """The history and position from which a webhook delivers. Raises InvalidToken, ChangesReset, InvalidInput."""
        if start.since is not None and start.since > now:
            raise InvalidInput(f"A replay cannot begin in the future: {format_unix(start.since)} has not come yet.")
        clock = await self.store.search.change_clock()
        if start.since is not None:
            position = Position(int(start.since * 1_000_000) - 1, INT64_MAX)
        elif start.after == NOW:
            position = Position(clock.at, INT64_MAX)
        elif start.after == BEGINNING:
            position = FIRST
        else:
            position = position_after(start.after, clock, owner)
        return history_of(clock.epoch, owner), position


def _without_gaps(webhook: Webhook, start: Start, history: str, position: Position) -> tuple[str, Position]:
    """The start's place; or the webhook's, if a reset is due there, or a start `since` a time would skip changes."""
    if webhook.history != history or (start.since is not None and webhook.position < position):
        return webhook.history, webhook.position
    return history, position
