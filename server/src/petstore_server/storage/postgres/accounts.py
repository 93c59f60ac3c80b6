"""Accounts in PostgreSQL. Implements `ports.Accounts`."""

import builtins
from dataclasses import replace

import psycopg

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.errors import AccountExists, AccountNotFound
from petstore_server.ports import Actor
from petstore_server.storage.entries import plan_fields
from petstore_server.storage.postgres.audit import record
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import Row, Session
from petstore_server.storage.rows import ACCOUNT_COLUMNS, account_of

_SELECT = f"SELECT {ACCOUNT_COLUMNS} FROM petstore.accounts"  # noqa: S608 - constants
_FIND = f"{_SELECT} WHERE name = %s"
_LOCK = f"{_FIND} FOR UPDATE"
_INSERT = "INSERT INTO petstore.accounts (name, plan, per_minute, per_day, created_at) VALUES (%s, %s, %s, %s, %s)"


async def access_changed(session: Session) -> None:
    """Let every process know, within the transaction, that what it holds of accounts, keys and bans is out of date.

    Last in a transaction: the row is locked from here to the commit, so the numbers come in the order of commits.
    """
    await session.execute("UPDATE petstore.store SET access_version = access_version + 1")


async def find_account(session: Session, name: str) -> Account:
    """Raises AccountNotFound."""
    return _one(await session.rows(_FIND, (name,)), name)


class PostgresAccounts:
    """The accounts of one store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create(self, name: str, plan: Plan, limits: Limits, actor: Actor) -> Account:
        """Raises AccountExists."""

        async def create(session: Session) -> Account:
            if await session.rows(_FIND, (name,)):  # before the insert, which would use up an id
                raise AccountExists(name)
            await session.execute(_INSERT, (name, str(plan), *limits, actor.at))
            await record(session, actor, "account.create", f"account:{name}", None, plan_fields(plan, limits))
            await access_changed(session)
            return await find_account(session, name)

        try:
            return await self._pool.transaction(create)
        except psycopg.errors.UniqueViolation:  # somebody else made it at the same moment
            raise AccountExists(name) from None

    async def find(self, name: str) -> Account:
        """Raises AccountNotFound."""
        return _one(await self._pool.rows(_FIND, (name,)), name)

    async def list(self) -> list[Account]:
        """All accounts, by name."""
        return [account_of(row) for row in await self._pool.rows(f"{_SELECT} ORDER BY name")]

    async def set_plan(self, name: str, plan: Plan, limits: Limits, actor: Actor) -> Account:
        """Change the plan; what was used stays used. Raises AccountNotFound."""

        async def set_plan(session: Session) -> Account:
            before = _one(await session.rows(_LOCK, (name,)), name)
            if (before.plan, before.limits) == (plan, limits):
                return before
            await session.execute(
                "UPDATE petstore.accounts SET plan = %s, per_minute = %s, per_day = %s WHERE id = %s",
                (str(plan), *limits, before.id),
            )
            was, now = plan_fields(before.plan, before.limits), plan_fields(plan, limits)
            await record(session, actor, "account.set_plan", f"account:{name}", was, now)
            await access_changed(session)
            return replace(before, plan=plan, limits=limits)

        return await self._pool.transaction(set_plan)

    async def suspend(self, name: str, actor: Actor) -> Account:
        """Make the account's keys invalid; suspending twice changes nothing. Raises AccountNotFound."""
        return await self._set_suspended(name, actor.at, "account.suspend", actor)

    async def resume(self, name: str, actor: Actor) -> Account:
        """Make them valid again; resuming twice changes nothing. Raises AccountNotFound."""
        return await self._set_suspended(name, None, "account.resume", actor)

    async def _set_suspended(self, name: str, at: float | None, action: str, actor: Actor) -> Account:
        async def set_suspended(session: Session) -> Account:
            before = _one(await session.rows(_LOCK, (name,)), name)
            if (before.suspended_at is None) == (at is None):
                return before
            await session.execute("UPDATE petstore.accounts SET suspended_at = %s WHERE id = %s", (at, before.id))
            was, now = {"suspended_at": before.suspended_at}, {"suspended_at": at}
            await record(session, actor, action, f"account:{name}", was, now)
            await access_changed(session)
            return replace(before, suspended_at=at)

        return await self._pool.transaction(set_suspended)


def _one(rows: builtins.list[Row], name: str) -> Account:
    if not rows:
        raise AccountNotFound(name)
    return account_of(rows[0])
