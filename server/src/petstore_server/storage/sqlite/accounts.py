"""Accounts in SQLite. Implements `ports.Accounts`."""

from dataclasses import replace
from typing import Any

import apsw

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.errors import AccountExists, AccountNotFound
from petstore_server.ports import Actor
from petstore_server.storage.entries import plan_fields
from petstore_server.storage.rows import ACCOUNT_COLUMNS, account_of
from petstore_server.storage.sqlite.audit import record
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.writer import Writer


def access_changed(connection: apsw.Connection) -> None:
    """Let every process know, within the transaction, that what it holds of accounts, keys and bans is out of date."""
    connection.execute("UPDATE store SET access_version = access_version + 1")


def find_account(connection: apsw.Connection, name: str) -> Account:
    """Raises AccountNotFound."""
    rows = connection.execute(f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE name = ?", (name,)).fetchall()  # noqa: S608
    return _one(rows, name)


class SqliteAccounts:
    """The accounts of one store."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    async def create(self, name: str, plan: Plan, limits: Limits, actor: Actor) -> Account:
        """Raises AccountExists."""

        def create(connection: apsw.Connection) -> Account:
            if connection.execute("SELECT 1 FROM accounts WHERE name = ?", (name,)).fetchall():
                raise AccountExists(name)
            connection.execute(
                "INSERT INTO accounts (name, plan, per_minute, per_day, created_at) VALUES (?, ?, ?, ?, ?)",
                (name, str(plan), *limits, actor.at),
            )
            access_changed(connection)
            record(connection, actor, "account.create", f"account:{name}", None, plan_fields(plan, limits))
            return find_account(connection, name)

        return await self._writer.run(create)

    async def find(self, name: str) -> Account:
        """Raises AccountNotFound."""
        return _one(self._reader.now(f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE name = ?", (name,)), name)  # noqa: S608

    async def list(self) -> list[Account]:
        """All accounts, by name."""
        return await self._reader.run(
            lambda connection: [
                account_of(row)
                for row in connection.execute(f"SELECT {ACCOUNT_COLUMNS} FROM accounts ORDER BY name")  # noqa: S608
            ]
        )

    async def set_plan(self, name: str, plan: Plan, limits: Limits, actor: Actor) -> Account:
        """Change the plan; what was used stays used. Raises AccountNotFound."""

        def set_plan(connection: apsw.Connection) -> Account:
            before = find_account(connection, name)
            if (before.plan, before.limits) == (plan, limits):
                return before
            connection.execute(
                "UPDATE accounts SET plan = ?, per_minute = ?, per_day = ? WHERE id = ?",
                (str(plan), *limits, before.id),
            )
            access_changed(connection)
            was, now = plan_fields(before.plan, before.limits), plan_fields(plan, limits)
            record(connection, actor, "account.set_plan", f"account:{name}", was, now)
            return replace(before, plan=plan, limits=limits)

        return await self._writer.run(set_plan)

    async def suspend(self, name: str, actor: Actor) -> Account:
        """Make the account's keys invalid; suspending twice changes nothing. Raises AccountNotFound."""
        return await self._set_suspended(name, actor.at, "account.suspend", actor)

    async def resume(self, name: str, actor: Actor) -> Account:
        """Make them valid again; resuming twice changes nothing. Raises AccountNotFound."""
        return await self._set_suspended(name, None, "account.resume", actor)

    async def _set_suspended(self, name: str, at: float | None, action: str, actor: Actor) -> Account:
        def set_suspended(connection: apsw.Connection) -> Account:
            before = find_account(connection, name)
            if (before.suspended_at is None) == (at is None):
                return before
            connection.execute("UPDATE accounts SET suspended_at = ? WHERE id = ?", (at, before.id))
            access_changed(connection)
            was, now = {"suspended_at": before.suspended_at}, {"suspended_at": at}
            record(connection, actor, action, f"account:{name}", was, now)
            return replace(before, suspended_at=at)

        return await self._writer.run(set_suspended)


def _one(rows: list[tuple[Any, ...]], name: str) -> Account:
    if not rows:
        raise AccountNotFound(name)
    return account_of(rows[0])
