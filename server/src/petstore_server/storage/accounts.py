"""Accounts. Implements `ports.Accounts`."""

import builtins
from typing import Any

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.errors import AccountExists, AccountNotFound
from petstore_server.domain.transitions import Transition
from petstore_server.ports import Actor
from petstore_server.storage.audit import Change, difference, record
from petstore_server.storage.statements import Command, Engine, Query, Row, Work

_COLUMNS = "id, name, plan, per_minute, per_day, created_at, suspended_at, contact, note, closed_at"
_SELECT = f"SELECT {_COLUMNS} FROM petstore.accounts"  # noqa: S608 - constants
_FIND = f"{_SELECT} WHERE name = %s"
_LOCK = f"{_FIND} FOR UPDATE"
_INSERT = f"""
    INSERT INTO petstore.accounts (name, plan, per_minute, per_day, created_at, contact, note)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (name) DO NOTHING RETURNING {_COLUMNS}
"""  # noqa: S608 - constants
_UPDATE = """
    UPDATE petstore.accounts
    SET plan = %s, per_minute = %s, per_day = %s, suspended_at = %s, contact = %s, note = %s, closed_at = %s
    WHERE id = %s
"""

ACCESS_CHANGED = Command("UPDATE petstore.store SET access_version = access_version + 1")
"""Reports a change of accounts, keys or bans to all processes. Last in a transaction: it locks the store's only row."""


class Accounts:
    """The accounts of one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self, name: str, plan: Plan, limits: Limits, actor: Actor, *, contact: str = "", note: str = ""
    ) -> Account:
        return await self._engine.transaction(lambda: _create(name, plan, limits, actor, contact, note))

    async def find(self, name: str) -> Account:
        return _one(await self._engine.query(_FIND, (name,)), name)

    async def list(self) -> list[Account]:
        return await self._engine.read(_list)

    async def change(self, name: str, transition: Transition[Account], actor: Actor) -> Account:
        return await self._engine.transaction(lambda: _change(name, transition, actor))


def find_account(name: str) -> Work[Account]:
    """Raises AccountNotFound."""
    return _one((yield Query(_FIND, (name,))), name)


def _create(name: str, plan: Plan, limits: Limits, actor: Actor, contact: str, note: str) -> Work[Account]:
    if (yield Query(_FIND, (name,))):  # an insert without effect would use up an identifier
        raise AccountExists(name)
    inserted = yield Query(_INSERT, (name, str(plan), *limits, actor.at, contact, note))
    if not inserted:  # another process created it meanwhile
        raise AccountExists(name)
    account = _account(inserted[0])
    created = {name: value for name, value in account.fields().items() if value not in (None, "")}
    yield record(actor, "account.create", f"account:{name}", Change(None, created))
    yield ACCESS_CHANGED
    return account


def _change(name: str, transition: Transition[Account], actor: Actor) -> Work[Account]:
    before = _one((yield Query(_LOCK, (name,))), name)
    after = transition.apply(before)
    if after == before:
        return before
    texts = after.contact, after.note
    yield Command(_UPDATE, (str(after.plan), *after.limits, after.suspended_at, *texts, after.closed_at, after.id))
    yield record(actor, transition.action, f"account:{name}", difference(before.fields(), after.fields()))
    yield ACCESS_CHANGED
    return after


def _list() -> Work[list[Account]]:
    return [_account(row) for row in (yield Query(f"{_SELECT} ORDER BY name"))]


def _one(rows: builtins.list[Row], name: str) -> Account:
    if not rows:
        raise AccountNotFound(name)
    return _account(rows[0])


def _account(row: tuple[Any, ...]) -> Account:
    account_id, name, plan, per_minute, per_day, created_at, suspended_at, contact, note, closed_at = row
    limits = Limits(per_minute, per_day)
    return Account(account_id, name, Plan(plan), limits, created_at, suspended_at, contact, note, closed_at)
