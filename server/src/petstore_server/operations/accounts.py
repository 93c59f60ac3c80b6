"""Accounts: create and close them, and report their windows."""

from typing import NamedTuple

from petstore_server.domain import accounts
from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import revoke
from petstore_server.domain.texts import check_note
from petstore_server.domain.timestamps import DAY, MINUTE
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import evaluate_account, roll_window
from petstore_server.store import Store


class WindowReport(NamedTuple):
    """A rate limit window of an account: requests used, its limit, requests remaining.

    `reset` is in Unix seconds, None if the window is not open, because nothing has been charged to it.
    """

    name: str
    used: int
    limit: int
    remaining: int
    reset: int | None


async def create_account(
    store: Store, name: str, plan: Plan, limits: Limits, actor: Actor, *, contact: str = "", note: str = ""
) -> Account:
    """Create an account. Raises AccountExists, InvalidInput."""
    contact, note = check_note(contact, "contact"), check_note(note)
    return await store.accounts.create(name, plan, limits, actor, contact=contact, note=note)


async def close_account(store: Store, name: str, actor: Actor) -> tuple[Account, int]:
    """End an account for good and revoke its keys; its history is kept, and its name is not free again.

    Return the account, and how many keys were revoked. Closing again revokes what an interrupted call left.

    Raises AccountNotFound.
    """
    account = await store.accounts.change(name, accounts.close(actor.at), actor)
    revoked = 0
    for key in await store.keys.list(name):
        if key.revoked_at is None:
            await store.keys.change(key.id, revoke(actor.at), actor)
            revoked += 1
    return account, revoked


def report_windows(account: Account, usage: Usage, now: float) -> tuple[WindowReport, ...]:
    """Both windows of the account at `now` (Unix seconds); one that has ended is reported as not open."""
    counts = roll_window(usage.minute, MINUTE, now), roll_window(usage.day, DAY, now)
    windows = evaluate_account(True, *counts, account.limits, now).windows
    return tuple(
        WindowReport(window.name, count.used, window.limit, window.remaining, window.reset if count.used else None)
        for window, count in zip(windows, counts, strict=True)
    )
