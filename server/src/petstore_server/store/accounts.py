"""Accounts, their plans and their limits."""

import builtins
from typing import Any

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.audit import Actor, Change, Transition, difference
from petstore_server.domain.errors import AccountExists, AccountNotFound
from petstore_server.store.audit import record
from petstore_server.store.engine import Command, Part, Query, Row, Work, transaction

_COLUMNS = "id, name, plan, per_minute, per_day, created_at, suspended_at, contact, note, closed_at"
_SELECT = f"SELECT {_COLUMNS} FROM petstore.accounts"  # noqa: S608 - constants
_FIND = f"{_SELECT} WHERE name = %s"
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


class Accounts(Part):
    """The accounts of one store."""

    @transaction
    def create(
        self, name: str, plan: Plan, limits: Limits, actor: Actor, *, contact: str = "", note: str = ""
    ) -> Work[Account]:
        """Raises AccountExists."""
        inserted = yield Query(_INSERT, (name, str(plan), *limits, actor.at, contact, note))
        if not inserted:
            raise AccountExists(name)
        account = _account(inserted[0])
        created = {name: value for name, value in account.fields().items() if value not in (None, "")}
        yield record(actor, "account.create", f"account:{name}", Change(None, created))
        yield ACCESS_CHANGED
        return account

    async def find(self, name: str) -> Account:
        """Raises AccountNotFound."""
        return _one(await self._engine.query(_FIND, (name,)), name)

    async def list(self) -> list[Account]:
        """Return all accounts, by name."""
        return [_account(row) for row in await self._engine.query(f"{_SELECT} ORDER BY name", short=False)]

    @transaction
    def change(self, name: str, transition: Transition[Account], actor: Actor) -> Work[Account]:
        """Apply the transition and return the account after it, once it is durable.

        The transitions are `set_plan`, `suspend`, `RESUME`, `edit` and `close` of `domain.accounts`. What changes
        nothing leaves no trace. Raises AccountNotFound, AccountClosed.
        """
        before = _one((yield Query(f"{_FIND} FOR UPDATE", (name,))), name)
        after = transition.apply(before)
        if after == before:
            return before
        texts = after.contact, after.note
        yield Command(_UPDATE, (str(after.plan), *after.limits, after.suspended_at, *texts, after.closed_at, after.id))
        yield record(actor, transition.action, f"account:{name}", difference(before.fields(), after.fields()))
        yield ACCESS_CHANGED
        return after


def find_account(name: str) -> Work[Account]:
    """Find an account within a transaction. Raises AccountNotFound."""
    return _one((yield Query(_FIND, (name,))), name)


def _one(rows: builtins.list[Row], name: str) -> Account:
    if not rows:
        raise AccountNotFound(name)
    return _account(rows[0])


def _account(row: tuple[Any, ...]) -> Account:
    account_id, name, plan, per_minute, per_day, created_at, suspended_at, contact, note, closed_at = row
    limits = Limits(per_minute, per_day)
    return Account(account_id, name, Plan(plan), limits, created_at, suspended_at, contact, note, closed_at)
