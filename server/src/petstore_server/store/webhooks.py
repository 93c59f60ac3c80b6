"""Webhooks in the store: their positions, leases and last attempts (D24).

A delivery is made under a lease, so that of several processes one delivers. A lease ends by itself some time after its
process died; it is measured by the clock of the store's host. No transaction is open while a receiver is waited for.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.audit import SERVICE, Actor, Change, difference
from petstore_server.domain.errors import AccountClosed, TooManyWebhooks, WebhookNotFound, WebhookSecretChanged
from petstore_server.domain.lists import ChangeClock, Position
from petstore_server.domain.orders import INT64_MAX, Status
from petstore_server.domain.transitions import Transition
from petstore_server.domain.webhooks import (
    MAX_PAUSE,
    MAX_WEBHOOKS,
    MAX_WEBHOOKS_OF_ACCOUNT,
    Attempt,
    Webhook,
    WebhookState,
    rotate,
)
from petstore_server.store.audit import as_json, record
from petstore_server.store.engine import Part, snapshot, transaction
from petstore_server.store.statements import LAST_CHANGE, NOW, Execute, Query, Row, Work, marks, one

LEASE_SECONDS = 30.0
"""Longer than an attempt takes, and the time after which another process goes on for one that died."""

MAX_EXAMINED = 10_000
"""Changes that are looked at together, the newest, for orders that concern webhooks."""

_COLUMNS = """
    url, statuses, state, position_history, position_at, position_id, replay, generation, previous_until, next_at,
    failures, failing_since, delivered_at, attempts
"""
_JOINED = "petstore.webhooks JOIN petstore.accounts ON accounts.id = account_id"
_SELECT = f"""
    SELECT webhooks.id, account_id, accounts.name, accounts.orders, closed_at, suspended_at, webhooks.created_at,
        {_COLUMNS}
    FROM {_JOINED}
"""
_INSERT = f"INSERT INTO petstore.webhooks (id, account_id, created_at, {_COLUMNS}) VALUES ({', '.join(['%s'] * 17)})"
_UPDATE = f"UPDATE petstore.webhooks SET ({_COLUMNS}) = ({', '.join(['%s'] * 14)}) WHERE id = %s"
_OWN = f"accounts.orders = '{VisibleOrders.OWN}'"
# Also where the store's clock was set back, or another host's took its place.
_FREE = f"NOT (leased_until > {NOW} AND leased_until <= {NOW} + {LEASE_SECONDS})"
# Likewise, where the clock was set back since the last attempt.
_NO_PAUSE = f"NOT (next_at > %s AND next_at <= %s + {MAX_PAUSE})"
_WORKS = f"state = '{WebhookState.ACTIVE}' AND suspended_at IS NULL"
# What an account sees may have changed after the position; or the position is of another history (`history_of`); or the
# webhook is failing: with nothing left to deliver, that ends.
_DUE = f"""
    SELECT id, account_id, owner, failures,
        CASE WHEN position_history = history THEN position_at END, position_id, statuses, last, history,
        failing_since IS NOT NULL
    FROM (
        SELECT webhooks.id, account_id, failures, failing_since, position_at, position_id, statuses, leased_until,
            position_history,
            CASE WHEN {_OWN} THEN account_id END AS owner,
            %s || CASE WHEN {_OWN} THEN ' ' || account_id ELSE '' END AS history,
            CASE WHEN {_OWN} THEN coalesce(({LAST_CHANGE.format("webhooks.account_id")}), 0) ELSE %s END AS last
        FROM {_JOINED}
        WHERE {_WORKS} AND {_NO_PAUSE} AND {_FREE}
    ) AS active
    WHERE failing_since IS NOT NULL OR position_history <> history OR (position_at, position_id) < (last, {INT64_MAX})
    ORDER BY leased_until, id
"""
_CHANGED = f"""
    SELECT status, account_id, max(updated_at), min(updated_at), count(*)
    FROM (
        SELECT status, account_id, updated_at FROM petstore.orders WHERE updated_at > %s
        ORDER BY updated_at DESC, id DESC LIMIT {MAX_EXAMINED}
    ) AS newest
    GROUP BY 1, 2
"""
# The first change that is not delivered. Of webhooks with statuses, since when they fail: to find it might take long.
_AFTER = "(updated_at, orders.id) > (position_at, position_id)"
_BEHIND_SINCE = f"""
    CASE
        WHEN statuses <> '' THEN failing_since
        WHEN {_OWN} THEN (
            SELECT updated_at / 1000000.0 FROM petstore.orders
            WHERE account_id = ANY(ARRAY[webhooks.account_id]) AND updated_at >= position_at AND {_AFTER}
            ORDER BY account_id, updated_at LIMIT 1
        )
        ELSE (
            SELECT updated_at / 1000000.0 FROM petstore.orders WHERE {_AFTER} ORDER BY updated_at, orders.id LIMIT 1
        )
    END
"""
_DIGEST = "SELECT webhook_secret FROM petstore.store WHERE one = 1"
_LEASE = f"""
    UPDATE petstore.webhooks SET lease = %s, leased_until = {NOW} + {LEASE_SECONDS}
    WHERE id IN (
        SELECT id FROM petstore.webhooks
        WHERE id IN {{ids}} AND state = '{WebhookState.ACTIVE}' AND {_NO_PAUSE} AND {_FREE}
            AND ({_DIGEST}) = %s
        ORDER BY id FOR UPDATE SKIP LOCKED
    )
    RETURNING id
"""
# A lease that ends keeps the time, so that webhooks take turns.
_RENEW = f"UPDATE petstore.webhooks SET leased_until = {NOW} + CASE WHEN %s THEN {LEASE_SECONDS} ELSE 0 END"
_RELEASE = f"{_RENEW} WHERE lease = %s AND leased_until > {NOW}"
_SUMMARY = f"""
    SELECT
        count(CASE WHEN {_WORKS} THEN 1 END),
        count(CASE WHEN state = '{WebhookState.STOPPED}' AND closed_at IS NULL THEN 1 END),
        count(CASE WHEN state = '{WebhookState.PAUSED}' AND closed_at IS NULL THEN 1 END),
        count(CASE WHEN {_WORKS} THEN failing_since END),
        min(CASE WHEN {_WORKS} THEN failing_since END),
        count(CASE WHEN attempts <> '[]' THEN 1 END) > 0,
        max(delivered_at),
        min(CASE WHEN {_WORKS} THEN {_BEHIND_SINCE} END),
        count(*)
    FROM {_JOINED}
"""
_ANY = "SELECT 1 FROM petstore.webhooks LIMIT 1"
_SET_DIGEST = "UPDATE petstore.store SET webhook_secret = %s WHERE one = 1"
_read_attempts = msgspec.json.Decoder(list[Attempt]).decode


class DueWebhook(NamedTuple):
    """A webhook that may have something to deliver: `last` is the time of the last change that its account sees.

    Times are Unix microseconds. `failures` is the number of failed attempts since the last success or change, `history`
    that of the changes now; the position has no time if it is of another one. `failing`: it is shown as failing.
    """

    id: str
    account_id: int
    owner: int | None
    failures: int
    position: Position
    statuses: str
    last: int
    history: str
    failing: bool

    @property
    def passed(self) -> int | None:
        """The time up to which no change concerns it; None if all changes after its position do."""
        at, order_id = self.position
        return None if at is None or not self.statuses else at - (order_id != INT64_MAX)

    def concerns(self, change: "StatusChange") -> bool:
        """Whether it may have to deliver an order that has changed to this status."""
        return change.status in (self.statuses or change.status).split() and self.owner in (None, change.account_id)


class StatusChange(NamedTuple):
    """Orders of an owner that have this status; `at` is the time of the last change among them (Unix microseconds)."""

    status: str
    account_id: int | None
    at: int


class WebhookSummary(NamedTuple):
    """How many webhooks are active, stopped, paused and failing, and since when the first of them fails (Unix seconds).

    `attempted`: there was an attempt. `delivered_at` is the time of the last success of all. `behind_since` is the time
    of the first change that an active one has not delivered; one with statuses counts only while it fails. `number` is
    that of all webhooks.
    """

    active: int
    stopped: int
    paused: int
    failing: int
    failing_since: float | None
    attempted: bool
    delivered_at: float | None
    behind_since: float | None
    number: int


class Webhooks(Part):
    """The webhooks of one store. `account_id` restricts what is found to an account's own."""

    @transaction
    def create(self, webhook: Webhook, secret_digest: str, actor: Actor) -> Work[Webhook]:
        """Store a webhook. Raises TooManyWebhooks, AccountClosed, WebhookSecretChanged."""
        # The account before the store, as in changes of accounts and keys: so none of them waits for another in turn.
        condition = "SELECT closed_at FROM petstore.accounts WHERE id = %s FOR NO KEY UPDATE"
        [(closed_at,)] = yield Query(condition, (webhook.account_id,))
        if closed_at is not None:
            raise AccountClosed(webhook.account)
        yield from self._require_secret(secret_digest)  # with a lock: no other webhook is created meanwhile
        count = "SELECT count(*), count(CASE WHEN account_id = %s THEN 1 END) FROM petstore.webhooks"
        [(of_store, of_account)] = yield Query(count, (webhook.account_id,))
        if of_account >= MAX_WEBHOOKS_OF_ACCOUNT or of_store >= MAX_WEBHOOKS:
            raise TooManyWebhooks(MAX_WEBHOOKS_OF_ACCOUNT if of_account >= MAX_WEBHOOKS_OF_ACCOUNT else MAX_WEBHOOKS)
        yield Execute(_INSERT, (webhook.id, webhook.account_id, webhook.created_at, *_values(webhook)))
        created = {"account": webhook.account, **webhook.fields()}
        yield record(actor, "webhook.create", f"webhook:{webhook.id}", Change(None, created))
        return webhook

    async def of_account(self, account_id: int | None = None) -> list[Webhook]:
        """The webhooks of an account, or of all, oldest first."""
        condition, values = ("", ()) if account_id is None else (" WHERE account_id = %s", (account_id,))
        sql = f"{_SELECT}{condition} ORDER BY webhooks.created_at, webhooks.id"
        return [_webhook(row) for row in await self._engine.query(sql, values, short=False)]

    async def find(self, webhook_id: str, account_id: int | None = None) -> Webhook:
        """Return the webhook with this id. Raises WebhookNotFound."""
        rows = await self._engine.query(f"{_SELECT} WHERE webhooks.id = %s", (webhook_id,))
        return _found(rows, webhook_id, account_id)

    @transaction
    def change(
        self, webhook_id: str, transition: Transition[Webhook], actor: Actor, account_id: int | None = None
    ) -> Work[Webhook]:
        """Apply the transition and return the webhook after it. Raises WebhookNotFound, WebhookEnded."""
        before = yield from _locked(webhook_id, account_id)
        after = transition.apply(before)
        if after != before:
            yield from _update(transition.action, before, after, actor)
        return after

    @transaction
    def delete(self, webhook_id: str, actor: Actor, account_id: int | None = None) -> Work[None]:
        """Delete a webhook; an attempt that is under way is not interrupted. Raises WebhookNotFound."""
        webhook = yield from _locked(webhook_id, account_id)
        yield Execute("DELETE FROM petstore.webhooks WHERE id = %s", (webhook_id,))
        yield record(actor, "webhook.delete", f"webhook:{webhook_id}", Change(webhook.fields(), None))

    @transaction
    def record_ping(self, webhook: Webhook, status: int | None, actor: Actor) -> Work[None]:
        """Record that a ping was sent, and the status of the response."""
        yield record(actor, "webhook.ping", f"webhook:{webhook.id}", Change(None, {"status": status}))

    @transaction
    def use_secret(self, digest: str) -> Work[None]:
        """Note which secret signs. Raises WebhookSecretChanged if there are webhooks that another one signs."""
        yield from self._require_secret(digest)

    @snapshot
    def has_secret(self, digest: str) -> Work[bool]:
        """Whether this secret signs the webhooks, or there are none."""
        [(stored,)] = yield Query(_DIGEST)
        return stored in (None, digest) or not (yield Query(_ANY))

    @transaction
    def rotate_all(self, digest: str, actor: Actor) -> Work[Sequence[Webhook]]:
        """Let another secret sign from now on, with the next generation of each webhook that has not ended."""
        yield Execute(_SET_DIGEST, (digest,))
        yield Query("SELECT 1 FROM petstore.webhooks ORDER BY id FOR UPDATE")  # those that are being changed, too
        rows = yield Query(f"{_SELECT} ORDER BY accounts.name, webhooks.id")
        webhooks = [webhook for webhook in map(_webhook, rows) if webhook.state is not WebhookState.ENDED]
        transition = rotate(0.0)
        changed = [transition.apply(webhook) for webhook in webhooks]
        for before, after in zip(webhooks, changed, strict=True):
            yield from _update(transition.action, before, after, actor)
        return changed

    async def due(self, clock: ChangeClock, now: float) -> list[DueWebhook]:
        """The webhooks that may have something to deliver at `now` (Unix seconds), the longest unserved first."""
        rows = await self._engine.query(_DUE, (clock.epoch, clock.at, now, now), short=False)
        return [DueWebhook._make((*row[:4], Position(*row[4:6]), *row[6:])) for row in rows]

    async def changed_since(self, at: int) -> tuple[int, list[StatusChange]]:
        """Which statuses, of which owners, orders have that were changed after this time (Unix microseconds).

        If more than MAX_EXAMINED were, only those after the time that is returned are all there; else this is `at`.
        """
        rows = await self._engine.query(_CHANGED, (at,), short=False)
        examined = sum(row[4] for row in rows)
        since = at if examined < MAX_EXAMINED else min(row[3] for row in rows)
        return since, [StatusChange(*row[:3]) for row in rows]

    @transaction
    def lease(self, ids: Collection[str], holder: str, now: float, secret_digest: str) -> Work[list[Webhook]]:
        """Lease those of the webhooks that no process has leased, and that are still due at `now` (Unix seconds).

        None if another secret signs by now: that of the holder was replaced, and it has to be restarted.
        """
        leased = yield Query(_LEASE.format(ids=marks(ids)), (holder, *ids, now, now, secret_digest))
        found = [webhook_id for (webhook_id,) in leased]
        if not found:
            return []
        rows = yield Query(f"{_SELECT} WHERE webhooks.id IN {marks(found)} AND {_WORKS}", found)
        return [_webhook(row) for row in rows]

    @transaction
    def finish(
        self, webhook_id: str, holder: str, at: float, apply: Callable[[Webhook], Webhook], *, go_on: bool
    ) -> Work[Webhook | None]:
        """Apply the outcome of an attempt, and end the lease, or renew it if the webhook is to `go_on`; return it.

        Return None if the holder has no lease any more, or the webhook does not go on. A stop or end is recorded.
        """
        held = "SELECT 1 FROM petstore.webhooks WHERE id = %s AND lease = %s FOR UPDATE"
        if not (yield Query(held, (webhook_id, holder))):
            return None
        before = _webhook(*(yield Query(f"{_SELECT} WHERE webhooks.id = %s", (webhook_id,))))
        after = apply(before)
        yield Execute(_UPDATE, (*_values(after), webhook_id))
        go_on = go_on and after.delivers and after.failures == 0
        yield Execute(f"{_RENEW} WHERE id = %s", (go_on, webhook_id))
        if after.state is not before.state:
            change = difference({"state": str(before.state)}, {"state": str(after.state)})
            action = "webhook.stop" if after.state is WebhookState.STOPPED else "webhook.end"
            yield record(Actor(SERVICE, at), action, f"webhook:{webhook_id}", change)
        return after if go_on else None

    @transaction
    def release(self, holder: str) -> Work[None]:
        """End all leases of a process that stops."""
        yield Execute(_RELEASE, (False, holder))

    async def summary(self) -> WebhookSummary:
        """What metrics and checks report."""
        [row] = await self._engine.query(_SUMMARY, short=False)
        return WebhookSummary._make((*row[:5], bool(row[5]), *row[6:]))

    def _require_secret(self, digest: str) -> Work[None]:
        [(stored,)] = yield Query(f"{_DIGEST} FOR UPDATE")
        if stored == digest:
            return
        if stored is not None and (yield Query(_ANY)):
            raise WebhookSecretChanged
        yield Execute(_SET_DIGEST, (digest,))


def _locked(webhook_id: str, account_id: int | None) -> Work[Webhook]:
    """Return the webhook, which no other transaction can change from here on. Raises WebhookNotFound."""
    yield Query("SELECT 1 FROM petstore.webhooks WHERE id = %s FOR UPDATE", (webhook_id,))
    return _found((yield Query(f"{_SELECT} WHERE webhooks.id = %s", (webhook_id,))), webhook_id, account_id)


def _found(rows: Sequence[Row], webhook_id: str, account_id: int | None) -> Webhook:
    return _webhook(one([row for row in rows if account_id in (None, row[1])], WebhookNotFound, webhook_id))


def _update(action: str, before: Webhook, after: Webhook, actor: Actor) -> Work[None]:
    yield Execute(_UPDATE, (*_values(after), after.id))
    change = difference(before.fields(), after.fields())
    if before.url != after.url:  # also if only its query differs, which is not recorded
        change = Change({**(change.before or {}), "url": before.place}, {**(change.after or {}), "url": after.place})
    yield record(actor, action, f"webhook:{after.id}", change)


def _values(webhook: Webhook) -> Row:
    place = webhook.history, *webhook.position, webhook.replay, webhook.generation, webhook.previous_until
    state = webhook.next_at, webhook.failures, webhook.failing_since, webhook.delivered_at
    chosen = webhook.url, " ".join(webhook.statuses), str(webhook.state)
    return *chosen, *place, *state, as_json(webhook.attempts)


def _webhook(row: Row) -> Webhook:
    webhook_id, account_id, account, orders, closed_at, suspended_at, created_at, url, statuses, state, *rest = row
    history, at, order_id, *others, attempts = rest
    owner = VisibleOrders(orders).owner(account_id)
    chosen = tuple(map(Status, statuses.split())), WebhookState(state if closed_at is None else WebhookState.ENDED)
    place = history, Position(at, order_id)
    ends: tuple[Any, ...] = (*others, tuple(_read_attempts(attempts)), suspended_at is not None)
    return Webhook(webhook_id, account_id, account, url, created_at, owner, *chosen, *place, *ends)
