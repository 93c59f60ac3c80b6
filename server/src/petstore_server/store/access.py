"""Access: accounts with their plans and limits; API keys, and which of them are valid."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from petstore_server.domain import accounts, keys
from petstore_server.domain.accounts import Account, Limits, Plan, VisibleOrders, require_open
from petstore_server.domain.audit import Actor, Change, difference
from petstore_server.domain.bans import CLOCK_TOLERANCE, Ban
from petstore_server.domain.errors import AccountExists, AccountNotFound, KeyNotFound, TooManyKeys
from petstore_server.domain.keys import ApiKey, Environment, Principal, RefusedKey, Scope, Successor
from petstore_server.domain.lists import NumberedPage, clamp_page
from petstore_server.domain.transitions import Transition
from petstore_server.store.audit import record
from petstore_server.store.engine import Part, bulk_transaction, snapshot, transaction
from petstore_server.store.statements import Execute, Query, Row, Work, one

ACCESS_CHANGED = Execute("UPDATE petstore.store SET access_version = access_version + 1 WHERE one = 1")
"""Reports a change of accounts, keys or bans to all processes.

No query follows it in a transaction: it locks the store's only row, and is sent together with the commit.
"""

_OWN_ORDERS = 2  # the schema version from which on programs know that an account may see its own orders only

_ACCOUNT_COLUMNS = "id, name, plan, per_minute, per_day, created_at, suspended_at, contact, note, closed_at, orders"
_SELECT_ACCOUNT = f"SELECT {_ACCOUNT_COLUMNS} FROM petstore.accounts"
_FIND_ACCOUNT = f"{_SELECT_ACCOUNT} WHERE name = %s"
_INSERT_ACCOUNT = f"""
    INSERT INTO petstore.accounts (id, name, plan, per_minute, per_day, created_at, contact, note, orders)
    VALUES ({{new}}, %s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (name) DO NOTHING RETURNING {_ACCOUNT_COLUMNS}
"""
_UPDATE_ACCOUNT = """
    UPDATE petstore.accounts
    SET plan = %s, per_minute = %s, per_day = %s, suspended_at = %s, contact = %s, note = %s, closed_at = %s,
        orders = %s
    WHERE id = %s
"""

# As if each had been paused and resumed: a suspension does not count as time of failing.
_RESUME_WEBHOOKS = """
    UPDATE petstore.webhooks SET next_at = 0, failures = 0, failing_since = NULL
    WHERE account_id = %s AND state = 'active'
"""

# Unknown, expired, revoked and other-environment keys all take this one look-up (D9).
_PRINCIPAL = """
    SELECT revoked_at, suspended_at, keys.id, accounts.id, accounts.name, plan, per_minute, per_day, scopes, expires_at,
        orders
    FROM petstore.keys JOIN petstore.accounts ON accounts.id = account_id
    WHERE digest = %s AND environment = %s
"""
_SELECT_KEY = """
    SELECT keys.id, accounts.name, digest, environment, scopes, keys.note, keys.created_at, expires_at, revoked_at,
        rotated_from, suspended_at, (SELECT successor.id FROM petstore.keys AS successor WHERE rotated_from = keys.id),
        (SELECT last_hour FROM petstore.key_use WHERE key_id = keys.id), began, until, level
    FROM petstore.keys JOIN petstore.accounts ON accounts.id = account_id LEFT JOIN petstore.bans ON key_id = keys.id
"""
_FIND_KEY = f"{_SELECT_KEY} WHERE keys.id = %s"
_LOCK_KEYS = """
    SELECT id FROM petstore.keys WHERE account_id = (SELECT id FROM petstore.accounts WHERE name = %s)
    ORDER BY id FOR NO KEY UPDATE
"""
_USABLE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %s)"
_WORKING = f"""
    FROM petstore.keys JOIN petstore.accounts ON accounts.id = account_id WHERE suspended_at IS NULL AND {_USABLE}
"""
_LATEST = "NOT EXISTS (SELECT 1 FROM petstore.keys AS successor WHERE successor.rotated_from = keys.id)"
_SEES_ALL_AND_MAY = f"{_WORKING} AND orders = '{VisibleOrders.ALL}' AND ' ' || scopes || ' ' LIKE %s"
_CANCEL_ALL = f"""
    SELECT count(DISTINCT accounts.id), min(accounts.name) {_SEES_ALL_AND_MAY}
    AND accounts.id NOT IN (SELECT accounts.id {_SEES_ALL_AND_MAY})
"""
_COUNT_KEYS = f"SELECT count(*) FROM petstore.keys WHERE account_id = %s AND {_USABLE} AND {_LATEST}"
# As `ApiKey.is_banned` has it.
_BANNED = f"""
    FROM petstore.bans JOIN petstore.keys ON keys.id = key_id JOIN petstore.accounts ON accounts.id = account_id
    WHERE began - {CLOCK_TOLERANCE} <= %s AND until > %s AND {_USABLE} AND suspended_at IS NULL
"""
_INSERT_KEY = """
    INSERT INTO petstore.keys (id, account_id, digest, environment, scopes, note, created_at, expires_at, rotated_from)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_SAVE_BAN = """
    INSERT INTO petstore.bans (key_id, began, until, level) VALUES (%s, %s, %s, %s)
    ON CONFLICT (key_id) DO UPDATE SET began = excluded.began, until = excluded.until, level = excluded.level
    WHERE (bans.began, bans.until, bans.level) IS DISTINCT FROM (excluded.began, excluded.until, excluded.level)
    RETURNING key_id
"""
_UPDATE_KEY = "UPDATE petstore.keys SET expires_at = %s, revoked_at = %s WHERE id = %s"


class AccessSummary(NamedTuple):
    """How many accounts there are, suspended ones and working keys among them; keys that expire soon, the next first.

    Each of these has its id, its account's name and its end in Unix seconds. `open` accounts are not closed; of them,
    so many see all orders and have a working key that may cancel (`cancel_all`), and `first` is the name of one.
    """

    accounts: int
    suspended: int
    working: int
    expiring: Sequence[tuple[str, str, float]]
    open: int
    cancel_all: int
    first: str | None


class Accounts(Part):
    @transaction
    def create(
        self,
        name: str,
        plan: Plan,
        limits: Limits,
        actor: Actor,
        *,
        contact: str = "",
        note: str = "",
        orders: VisibleOrders = VisibleOrders.ALL,
    ) -> Work[Account]:
        """Store an account and return it. Raises AccountExists."""
        sql = _INSERT_ACCOUNT.format(new=self._engine.dialect.new_account)
        inserted = yield Query(sql, (name, str(plan), *limits, actor.at, contact, note, str(orders)))
        account = _account(one(inserted, AccountExists, name))
        created = {name: value for name, value in account.fields().items() if value not in (None, "")}
        yield record(actor, "account.create", f"account:{name}", Change(None, created))
        yield from self._access_changed(account)
        return account

    async def find(self, name: str) -> Account:
        """Return the account with this name. Raises AccountNotFound."""
        return _account(one(await self._engine.query(_FIND_ACCOUNT, (name,)), AccountNotFound, name))

    async def list(self) -> list[Account]:
        """Return all accounts, by name."""
        return [_account(row) for row in await self._engine.query(f"{_SELECT_ACCOUNT} ORDER BY name", short=False)]

    async def names(self, ids: Collection[int]) -> dict[int, str]:
        """The names of the accounts with these ids."""
        return dict(
            await self._engine.query("SELECT id, name FROM petstore.accounts WHERE id = ANY(%s::bigint[])", ([*ids],))
        )

    @transaction
    def change(self, name: str, transition: Transition[Account], actor: Actor) -> Work[Account]:
        """Apply the transition and return the account after it. Raises AccountNotFound, AccountClosed."""
        before = yield from _locked_account(name)
        after = transition.apply(before)
        if after != before:
            yield from _update_account(transition.action, before, after, actor)
            if before.suspended_at is not None and after.suspended_at is None:
                yield Execute(_RESUME_WEBHOOKS, (after.id,))
            yield from self._access_changed(after)
        return after

    @bulk_transaction
    def close_account(self, name: str, actor: Actor) -> Work[tuple[Account, int]]:
        """End an account for good; return it, and how many keys were revoked. Raises AccountNotFound.

        Its history is kept, and its name is not free again. An operator waits, so it waits only briefly for locks; but
        there may be many keys.
        """
        # Keys are locked before the account and the store, as by changes of a key, and read when no other
        # transaction can create one any more: that needs the account. Neither lock blocks the checks of
        # foreign keys, so there is no deadlock with saving usage, which comes to accounts before keys.
        yield Query(_LOCK_KEYS, (name,), briefly=True)
        before = yield from _locked_account(name)
        rows = yield Query(f"{_SELECT_KEY} WHERE account_id = %s AND revoked_at IS NULL", (before.id,))
        close, revoke = accounts.close(actor.at), keys.revoke(actor.at)
        after = close.apply(before)
        if after != before:
            yield from _update_account(close.action, before, after, actor)
        for key in map(_key, rows):
            yield from _update_key(revoke.action, key, revoke.apply(key), actor)
        if after != before or rows:
            yield ACCESS_CHANGED
        return after, len(rows)

    def _access_changed(self, account: Account) -> Work[None]:
        if account.orders is VisibleOrders.OWN:
            yield from self._engine.dialect.require_schema(_OWN_ORDERS)
        yield ACCESS_CHANGED


class Keys(Part):
    async def principal(self, digest: bytes, environment: Environment, now: float) -> Principal | RefusedKey | None:
        """Return what the key with this SHA-256 allows at `now`; None if this environment has no such key."""
        rows = await self._engine.query(_PRINCIPAL, (digest, str(environment)))
        if not rows:
            return None
        revoked_at, suspended_at, key_id, account_id, account, plan, *limits, scopes, expires_at, orders = rows[0]
        state = keys.key_state(expires_at, revoked_at, suspended_at is not None, now)
        if state not in keys.VALID:
            return RefusedKey(key_id, account, state)
        owner = VisibleOrders(orders).owner(account_id)
        allowed = Plan(plan), Limits(*limits), keys.parse_scopes(scopes)
        return Principal(key_id, account_id, account, *allowed, expires_at, owner)

    @transaction
    def create(self, key: ApiKey, actor: Actor) -> Work[ApiKey]:
        """Store a key of the account `key.account`, and return it.

        Raises AccountNotFound, AccountClosed, TooManyKeys.
        """
        account = require_open((yield from _locked_account(key.account)))  # so no other key is created meanwhile
        [(number,)] = yield Query(_COUNT_KEYS, (account.id, actor.at))
        if number >= keys.MAX_KEYS:
            raise TooManyKeys(key.account, number, keys.MAX_KEYS)
        yield _insert_key(key, account.id)
        allowed = {"account": key.account, "environment": str(key.environment), "scopes": sorted(key.scopes)}
        created = {**allowed, "note": key.note, "expires_at": key.expires_at}
        yield record(actor, "key.create", f"key:{key.id}", Change(None, created))
        yield ACCESS_CHANGED
        return replace(key, account_suspended=account.suspended_at is not None)

    async def find(self, key_id: str) -> ApiKey:
        """Return the key with this id. Raises KeyNotFound."""
        return _key(one(await self._engine.query(_FIND_KEY, (key_id,)), KeyNotFound, key_id))

    async def with_digest(self, digest: bytes) -> ApiKey | None:
        """Return the key with this SHA-256, of whatever environment and state."""
        rows = await self._engine.query(f"{_SELECT_KEY} WHERE digest = %s", (digest,))
        return _key(rows[0]) if rows else None

    async def list(self, account: str | None = None) -> list[ApiKey]:
        """Return the keys of one account or of all, oldest first. Raises AccountNotFound."""
        chosen = "" if account is None else "WHERE account_id = %s"
        values = () if account is None else ((await Accounts(self._engine).find(account)).id,)
        sql = f"{_SELECT_KEY} {chosen} ORDER BY keys.created_at, keys.number"
        rows = await self._engine.query(sql, values, short=False)
        return [_key(row) for row in rows]

    @snapshot
    def page(
        self, account_id: int, now: float, size: int, number: int = 1, *, usable: bool | None = None
    ) -> Work[NumberedPage[ApiKey]]:
        """One page of an account's keys: those usable at `now` (Unix seconds) first, newest first. `usable` selects."""
        choice = {None: "", True: f" AND {_USABLE}", False: f" AND NOT ({_USABLE})"}[usable]
        values = (account_id,) if usable is None else (account_id, now)
        chosen = Query(f"FROM petstore.keys WHERE account_id = %s{choice}", values)
        order = Query(f"CASE WHEN {_USABLE} THEN 0 ELSE 1 END, keys.created_at DESC, keys.number DESC", (now,))
        return (yield from _page(chosen, order, size, number))

    @snapshot
    def banned(self, now: float, size: int, number: int = 1, *, name: str = "") -> Work[NumberedPage[ApiKey]]:
        """One page of the keys banned at `now` (Unix seconds), last to end first. `name`: an account or a key id."""
        chosen = Query(f"{_BANNED} AND (%s = '' OR %s IN (keys.id, accounts.name))", (now, now, now, name, name))
        return (yield from _page(chosen, Query("until DESC, keys.id"), size, number))

    async def banned_accounts(self, now: float) -> frozenset[int]:
        """The ids of the accounts that have a key that is banned at `now` (Unix seconds)."""
        rows = await self._engine.query(f"SELECT account_id {_BANNED}", (now, now, now), short=False)
        return frozenset(account_id for (account_id,) in rows)

    @snapshot
    def summary(self, now: float, soon: float) -> Work[AccessSummary]:
        """What there is at `now`, and which keys without a successor expire before `soon` (Unix seconds)."""
        counts = "count(*), count(suspended_at), count(*) - count(closed_at)"
        [(accounts, suspended, are_open)] = yield Query(f"SELECT {counts} FROM petstore.accounts")
        manage = now, f"% {Scope.ORDERS_MANAGE} %"
        [(shops_own,)] = yield Query(f"SELECT count(DISTINCT accounts.id) {_SEES_ALL_AND_MAY}", manage)
        [cancelling] = yield Query(_CANCEL_ALL, (now, f"% {Scope.ORDERS_CANCEL} %", *manage))
        [(working,)] = yield Query(f"SELECT count(*) {_WORKING}", (now,))
        sql = f"SELECT keys.id, accounts.name, expires_at {_WORKING} AND expires_at < %s AND {_LATEST}"
        expiring = yield Query(f"{sql} ORDER BY expires_at, keys.id", (now, soon))
        return AccessSummary(accounts, suspended, working, expiring, are_open - shops_own, *cancelling)

    @transaction
    def change(self, key_id: str, transition: Transition[ApiKey], actor: Actor) -> Work[ApiKey]:
        """Apply `revoke` or `unban` and return the key after it. Raises KeyNotFound, KeyNotBanned."""
        before = yield from _locked_key(key_id)
        after = transition.apply(before)
        if after != before:
            yield from _update_key(transition.action, before, after, actor)
            yield ACCESS_CHANGED
        return after

    @transaction
    def rotate(self, key_id: str, successor: Successor, grace_ends: float, actor: Actor) -> Work[tuple[ApiKey, ApiKey]]:
        """Replace the key by a successor, as `domain.keys.rotate` does. Raises KeyNotFound, KeyNotUsable."""
        before = yield from _locked_key(key_id)
        old, new = keys.rotate(before, successor, grace_ends, actor.at)
        yield _insert_key(new, (yield from _locked_account(new.account, "FOR SHARE")).id)
        if new.ban is not None:
            yield save_ban(new.ban)
        yield from _update_key("key.rotate", before, old, actor)
        yield ACCESS_CHANGED
        return old, new


def save_ban(ban: Ban) -> Query:
    """Store a ban; no row is returned if it is stored already."""
    return Query(_SAVE_BAN, (ban.key_id, ban.began, ban.until, ban.level))


def _locked_account(name: str, lock: str = "FOR NO KEY UPDATE") -> Work[Account]:
    """Return the account, which no other transaction can change from here on. Raises AccountNotFound."""
    return _account(one((yield Query(f"{_FIND_ACCOUNT} {lock}", (name,))), AccountNotFound, name))


def _update_account(action: str, before: Account, after: Account, actor: Actor) -> Work[None]:
    texts = after.contact, after.note
    changing = str(after.plan), *after.limits, after.suspended_at, *texts, after.closed_at, str(after.orders)
    yield Execute(_UPDATE_ACCOUNT, (*changing, after.id))
    yield record(actor, action, f"account:{after.name}", difference(before.fields(), after.fields()))


def _account(row: Row) -> Account:
    account_id, name, plan, per_minute, per_day, *rest, orders = row
    fields: tuple[Any, ...] = (*rest, VisibleOrders(orders))
    return Account(account_id, name, Plan(plan), Limits(per_minute, per_day), *fields)


def _page(chosen: Query, order: Query, size: int, number: int) -> Work[NumberedPage[ApiKey]]:
    """One page of the keys that are `chosen`, from which tables and with which condition."""
    [(total,)] = yield Query(f"SELECT count(*) {chosen.sql}", chosen.parameters)
    number, pages = clamp_page(total, size, number)
    ids = f"SELECT keys.id {chosen.sql} ORDER BY {order.sql} LIMIT %s OFFSET %s"
    values = (*chosen.parameters, *order.parameters, size, (number - 1) * size, *order.parameters)
    rows = yield Query(f"{_SELECT_KEY} WHERE keys.id IN ({ids}) ORDER BY {order.sql}", values)
    return NumberedPage([_key(row) for row in rows], total, number, pages)


def _locked_key(key_id: str) -> Work[ApiKey]:
    """Return the key, which no other transaction can change from here on. Raises KeyNotFound."""
    yield Query("SELECT 1 FROM petstore.keys WHERE id = %s FOR NO KEY UPDATE", (key_id,))
    return _key(one((yield Query(_FIND_KEY, (key_id,))), KeyNotFound, key_id))


def _update_key(action: str, before: ApiKey, after: ApiKey, actor: Actor) -> Work[None]:
    yield Execute(_UPDATE_KEY, (after.expires_at, after.revoked_at, after.id))
    if before.ban is not None and after.ban is None:
        yield Execute("DELETE FROM petstore.bans WHERE key_id = %s", (after.id,))
    yield record(actor, action, f"key:{after.id}", difference(before.fields(), after.fields()))


def _insert_key(key: ApiKey, account_id: int) -> Execute:
    scopes = " ".join(sorted(key.scopes))
    identity = (key.id, account_id, key.digest, str(key.environment), scopes)
    return Execute(_INSERT_KEY, (*identity, key.note, key.created_at, key.expires_at, key.rotated_from))


def _key(row: Row) -> ApiKey:
    key_id, account, digest, environment, scopes, *rest, suspended, rotated_to, last_used, began, until, level = row
    ban = None if began is None else Ban(key_id, began, until, level)
    allowed = Environment(environment), keys.parse_scopes(scopes)
    fields = key_id, account, digest, *allowed, *rest, ban, suspended is not None, rotated_to, last_used
    return ApiKey(*fields)
