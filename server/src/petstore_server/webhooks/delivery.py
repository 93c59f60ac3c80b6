"""Delivery: a loop that looks for webhooks with something to deliver, and tasks that deliver it (D24)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic

import msgspec

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.lists import BY_CHANGE, ChangeClock, Page, PageQuery, Position
from petstore_server.domain.orders import INT64_MAX
from petstore_server.domain.timestamps import timestamp_text
from petstore_server.domain.tokens import FIRST, history_of, token_of
from petstore_server.domain.webhooks import Message, Webhook, WebhookState, attempted, message_id
from petstore_server.store import Store
from petstore_server.store.search import position_of
from petstore_server.store.webhooks import DueWebhook
from petstore_server.webhooks.sending import Sender

MAX_ORDERS = 100  # of a message
MAX_BYTES = 20_000  # of the orders of a message, which is more than an order can have
MAX_DELIVERIES = 32  # of a process
MAX_FAILING = 8  # of these, for webhooks whose last attempt has failed
MAX_OF_ACCOUNT = 8
CLOSING_SECONDS = 2.0  # for which the end of a process waits for deliveries that are under way
IDLE_SECONDS = 1.0
"""After which webhooks are looked at although no order has changed: for pauses that end, and new ones."""

_LONG_WALK = 10  # short pages without an order after which the position is moved, and the lease renewed
_log = logging.getLogger(__name__)


Examined = tuple[str, str, Position, str]  # a webhook, and what decides which orders it delivers


class Deliveries:
    """The deliveries of one process. `holder` identifies it; `uniform` returns random numbers from 0 to 1."""

    def __init__(self, store: Store, sender: Sender, holder: str, uniform: Callable[[], float]) -> None:
        self._store = store
        self._sender = sender
        self._holder = holder
        self._uniform = uniform
        self._clock: ChangeClock | None = None  # as it was at the last look
        self._looked_at = 0.0
        # At the last look due webhooks waited for a place of any kind, of these accounts, or of those that fail.
        self._full, self._full_accounts, self._full_failing = False, set[int](), False
        # The deliveries under way, by webhook, with what each was begun for.
        self._tasks: dict[str, tuple[asyncio.Task[None], DueWebhook]] = {}
        # Up to which time (Unix microseconds) webhooks have nothing to deliver, because of their statuses.
        self._nothing: dict[Examined, int] = {}
        self._ended = False
        self.outcomes = Counter[str]()

    async def look(self, now: float) -> None:
        """Begin deliveries for webhooks that have something to deliver at `now` (Unix seconds).

        Raises ServiceUnavailable, also while damage to the store is known.
        """
        self._store.engine.damage.require_none()
        clock = await self._store.search.change_clock()
        if clock == self._clock and monotonic() < self._looked_at + IDLE_SECONDS:
            return
        self._clock, self._looked_at = clock, monotonic()
        try:
            await self._begin_due(clock, now)
        except Exception:
            self._clock = None  # a look that has failed is repeated in full: without a read none succeeds
            raise

    async def _begin_due(self, clock: ChangeClock, now: float) -> None:
        due = [each for each in await self._store.webhooks.due(clock, now) if each.id not in self._tasks]
        due = await self._with_orders(due)
        chosen = self._chosen(due)
        if chosen and not self._ended:
            known = {each.id: each for each in chosen}
            for webhook in await self._store.webhooks.lease(
                list(known), self._holder, now, self._sender.secrets.digest
            ):
                self._begin(webhook, known[webhook.id])

    def end(self) -> None:
        """Begin no more deliveries: the process stops."""
        self._ended = True

    async def close(self) -> None:
        """End the deliveries; another process repeats those that are not finished soon."""
        self._ended = True
        if tasks := [task for task, _ in self._tasks.values()]:
            _, late = await asyncio.wait(tasks, timeout=CLOSING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(ServiceUnavailable):
            await self._store.webhooks.release(self._holder)

    @property
    def under_way(self) -> int:
        """The number of deliveries under way."""
        return len(self._tasks)

    async def _with_orders(self, due: Sequence[DueWebhook]) -> list[DueWebhook]:
        """Those that may have an order to deliver, last those about which too much has changed to know.

        The others have none: only orders with other statuses have changed.
        """
        passed = {_examined(each): self._nothing.get(_examined(each), each.passed) for each in due}
        known = [at for at in passed.values() if at is not None]
        since, changed = await self._store.webhooks.changed_since(min(known)) if known else (0, [])
        some, unknown, nothing = list[DueWebhook](), list[DueWebhook](), dict[Examined, int]()
        for each in due:
            at = passed[_examined(each)]
            # One that fails may have no order to deliver any more; a delivery finds that out, and ends the failure.
            if at is None or each.failing or any(change.at > at and each.concerns(change) for change in changed):
                some.append(each)
            elif at < since:
                unknown.append(each)
            else:
                nothing[_examined(each)] = each.last
        self._nothing = nothing
        return some + unknown

    def _chosen(self, due: Sequence[DueWebhook]) -> list[DueWebhook]:
        """Those for which there are places; note for which the others wait."""
        chosen: list[DueWebhook] = []
        begun = [each for _, each in self._tasks.values()]
        accounts, failing = Counter(each.account_id for each in begun), sum(bool(each.failures) for each in begun)
        self._full, self._full_accounts, self._full_failing = False, set(), False
        for each in due:
            if len(self._tasks) + len(chosen) == MAX_DELIVERIES:
                self._full = True
                break
            if accounts[each.account_id] >= MAX_OF_ACCOUNT:
                self._full_accounts.add(each.account_id)
            elif each.failures and failing >= MAX_FAILING:
                self._full_failing = True
            else:
                accounts[each.account_id] += 1
                failing += bool(each.failures)
                chosen.append(each)
        return chosen

    def _begin(self, webhook: Webhook, due: DueWebhook) -> None:
        task = asyncio.get_running_loop().create_task(self._run(webhook, due))
        self._tasks[webhook.id] = task, due

        def ended(_: object) -> None:
            del self._tasks[webhook.id]
            self._clock = None  # what has changed meanwhile, or waits for this place, is looked for at once

        task.add_done_callback(ended)

    async def _run(self, webhook: Webhook, due: DueWebhook) -> None:
        """Deliver what there is. After an error the lease ends by itself, and the delivery is repeated."""
        try:
            await self._deliver(webhook, due)
        except ServiceUnavailable as error:
            _log.warning("delivery not recorded", extra={"webhook": webhook.id, "reason": error.reason})
        except Exception as error:  # noqa: BLE001 - a defect in one delivery must not end the others
            _log.error("delivery failed", extra={"webhook": webhook.id}, exc_info=error)

    async def _deliver(self, webhook: Webhook, due: DueWebhook) -> None:
        """Deliver messages until there is none, one fails, or others need the place. `due` is what it was begun for."""
        going_on: Webhook | None = webhook
        while going_on is not None:
            webhook = going_on
            found = await self._next_message(webhook)
            if isinstance(found, Message):
                going_on = await self._attempt(webhook, found, due)
            else:
                going_on = await self._skip(webhook, found, due)
                if found == webhook.position:
                    self._nothing[webhook.id, webhook.history, found, " ".join(webhook.statuses)] = due.last

    def _goes_on(self, due: DueWebhook) -> bool:
        """Whether a delivery keeps its place for one more message: not if a webhook waits that could take it."""
        needed = self._full or due.account_id in self._full_accounts or (due.failures and self._full_failing)
        return not (self._ended or needed)

    async def _attempt(self, webhook: Webhook, message: Message, due: DueWebhook) -> Webhook | None:
        """Send a message and store the outcome; return the webhook if there is more to deliver now."""
        exchange = await self._sender.send(webhook, message.id, message.body)
        attempt = exchange.attempt
        self.outcomes["delivered" if attempt.succeeded else "failed"] += 1

        left: WebhookState | None = None

        def outcome(stored: Webhook) -> Webhook:
            nonlocal left
            spread = self._uniform()
            changed = attempted(stored, message, webhook, attempt, exchange.retry_after, spread)
            left = changed.state if changed.state is not stored.state else None
            return changed

        go_on = message.more and self._goes_on(due)
        finish = self._store.webhooks.finish
        after = await finish(webhook.id, self._holder, attempt.at, outcome, go_on=go_on)
        if not attempt.succeeded:
            fields = {"webhook": webhook.id, "account": webhook.account, "status": attempt.status}
            _log.info("delivery attempt failed", extra={**fields, "failures": webhook.failures + 1})
            if left is WebhookState.STOPPED:
                _log.warning("webhook stopped", extra=fields)
            elif left is WebhookState.ENDED:
                _log.warning("webhook ended", extra=fields)
        return after

    async def _next_message(self, webhook: Webhook) -> Message | Position:
        """What the receiver has not got yet, at most MAX_ORDERS; or a position up to which there is nothing."""
        clock = await self._store.search.change_clock()
        history = history_of(clock.epoch, webhook.owner)
        if webhook.history != history:
            data = {"next": token_of(clock.epoch, FIRST, webhook.owner)}
            at = max(0, webhook.position.value or 0)  # a replay may begin before the year 1
            at = at or int(webhook.created_at * 1_000_000)
            return _message(webhook, "orders.reset", at, msgspec.json.encode(data), history, FIRST, more=True)
        page = await self._read(webhook)
        if isinstance(page, Position):
            return page
        rows, more = _bounded(page)
        last = position_of(rows[-1], BY_CHANGE.field)
        at = last.value or 0
        await self._store.engine.witness(clock.epoch, at)
        data_text = (
            f'{{"orders":[{Page(rows, None).text()}],"more":{"true" if more else "false"},'
            f'"next":"{token_of(clock.epoch, last, webhook.owner)}"}}'
        )
        # All that shares the time of the last order was in the page, because one transaction has changed it.
        position = last if more else Position(at, INT64_MAX)
        return _message(webhook, "orders.changed", at, data_text.encode(), history, position, more=more)

    async def _read(self, webhook: Webhook) -> Page | Position:
        """The first page with an order after the webhook's position.

        Without one it is this position; after a long walk, the one that was reached.
        """
        after = webhook.position
        for _ in range(_LONG_WALK):
            page = await self._store.search.page(PageQuery(webhook.filters, BY_CHANGE, MAX_ORDERS, after))
            if page.rows:
                return page
            if page.next is None:
                return webhook.position
            after = page.next
        return after

    async def _skip(self, webhook: Webhook, position: Position, due: DueWebhook) -> Webhook | None:
        """Move the webhook to a position up to which there is nothing; end the lease if it has that already."""

        def outcome(stored: Webhook) -> Webhook:
            place = position if stored.continues(webhook) else stored.position
            return replace(stored, position=place, next_at=0.0, failures=0, failing_since=None)

        go_on = position != webhook.position and self._goes_on(due)
        return await self._store.webhooks.finish(webhook.id, self._holder, webhook.created_at, outcome, go_on=go_on)


def _examined(due: DueWebhook) -> Examined:
    return due.id, due.history, due.position, due.statuses


def _bounded(page: Page) -> tuple[Sequence[tuple[object, ...]], bool]:
    """The rows of the page that fit a message, and whether there may be more."""
    size = 0
    for number, row in enumerate(page.rows):
        size += len(Page([row], None).text().encode())
        if size > MAX_BYTES:
            return page.rows[:number], True
    return page.rows, page.next is not None


def _message(
    webhook: Webhook, kind: str, at: int, data: bytes, history: str, position: Position, *, more: bool
) -> Message:
    """The message of a kind about changes up to `at` (Unix microseconds); `data` is JSON."""
    body = b'{"type":"%s","timestamp":"%s","data":%s}' % (kind.encode(), timestamp_text(at).encode(), data)
    return Message(message_id(webhook, history, position, body), body, history, position, more)
