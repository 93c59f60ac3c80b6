"""Accounts: create them, change their plan, suspend and resume them, and report their usage."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from petstore_server.domain import accounts
from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.windows import DAY, MINUTE, evaluate_account, roll_window
from petstore_server.operations.keys import KeyReport
from petstore_server.ports import Actor, Store, Usage

UsageSource = Callable[[int], Awaitable[Usage | None]]
"""Finds the usage of an account by its id; None if it is counted where it cannot be read from here."""


class WindowReport(NamedTuple):
    """A rate limit window of an account: requests used, its limit, requests remaining.

    `reset` is in Unix seconds, None if the window is not open, because nothing has been charged to it.
    """

    name: str
    used: int
    limit: int
    remaining: int
    reset: int | None


class AccountReport(NamedTuple):
    """An account with its keys, oldest first, and its windows; `windows` is None if its usage is not known here."""

    account: Account
    windows: tuple[WindowReport, ...] | None
    keys: list[KeyReport]


async def create_account(store: Store, name: str, plan: Plan, limits: Limits, actor: Actor) -> Account:
    """Create an account. Raises AccountExists."""
    return await store.accounts.create(name, plan, limits, actor)


async def set_plan(store: Store, name: str, plan: Plan, limits: Limits, actor: Actor) -> Account:
    """Change an account's plan; its usage is preserved (D11). Raises AccountNotFound."""
    return await store.accounts.change(name, accounts.set_plan(plan, limits), actor)


async def suspend_account(store: Store, name: str, actor: Actor) -> Account:
    """Make all keys of an account invalid; suspending twice changes nothing. Raises AccountNotFound."""
    return await store.accounts.change(name, accounts.suspend(actor.at), actor)


async def resume_account(store: Store, name: str, actor: Actor) -> Account:
    """Make the keys of a suspended account valid again; resuming twice changes nothing. Raises AccountNotFound."""
    return await store.accounts.change(name, accounts.RESUME, actor)


async def report_account(store: Store, name: str, usage_of: UsageSource, now: float) -> AccountReport:
    """An account, its windows at `now` (Unix seconds) and its keys. Raises AccountNotFound, ServiceUnavailable."""
    account = await store.accounts.find(name)
    usage = await usage_of(account.id)
    keys = [KeyReport(key, account.suspended_at is not None) for key in await store.keys.list(name)]
    return AccountReport(account, usage and report_windows(account, usage, now), keys)


def report_windows(account: Account, usage: Usage, now: float) -> tuple[WindowReport, ...]:
    """Both windows of the account at `now` (Unix seconds); one that has ended is reported as not open."""
    counts = roll_window(usage.minute, MINUTE, now), roll_window(usage.day, DAY, now)
    windows = evaluate_account(True, *counts, account.limits, now).windows
    return tuple(
        WindowReport(window.name, count.used, window.limit, window.remaining, window.reset if count.used else None)
        for window, count in zip(windows, counts, strict=True)
    )
