"""Lists of accounts with their usage: who is closest to a limit, who is banned."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from petstore_server.domain.accounts import Account
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import KeyNotFound
from petstore_server.domain.usage import Granularity, UsageCounts
from petstore_server.domain.windows import DAY, MINUTE, roll_window
from petstore_server.ports import Store, Usage

UsagesSource = Callable[[], Awaitable[Mapping[int, Usage]]]
"""Reads the usage of all accounts by their ids; accounts without any may be missing."""

_MOST_BANS = 20
_REFUSALS_SECONDS = 86_400
PAGE_SIZE = 50


class AccountSort(StrEnum):
    """The orders of a list of accounts; ties are sorted by name."""

    NAME = "name"
    SHARE = "share"
    REFUSED = "refused"
    NEWEST = "newest"


class AccountUsage(NamedTuple):
    """An account, what its windows were charged with at a time, and the requests refused in the 24 hours before."""

    account: Account
    minute: int
    day: int
    refused: int

    @property
    def share(self) -> float:
        """The used part of the window that is closest to its limit, from 0 to 1."""
        limits = self.account.limits
        return min(1.0, max(self.minute / limits.per_minute, self.day / limits.per_day))


class AccountsPage(NamedTuple):
    """One page of a list of accounts: `page` of `pages`, counted from 1; `total` accounts match."""

    rows: list[AccountUsage]
    total: int
    page: int
    pages: int


class BannedKey(NamedTuple):
    """A ban in force, and the account that the key belongs to."""

    ban: Ban
    account: str


async def list_account_usage(store: Store, usages: UsagesSource, now: float) -> list[AccountUsage]:
    """All accounts, by name, with their usage at `now` (Unix seconds)."""
    accounts, used, totals = await asyncio.gather(
        store.accounts.list(), usages(), store.usage.totals(_day_before(now), int(now) + 1)
    )
    return await asyncio.to_thread(_with_usage, accounts, used, totals, now)  # there may be tens of thousands


async def page_of_accounts(
    store: Store, usages: UsagesSource, now: float, *, search: str, sort: AccountSort, page: int
) -> AccountsPage:
    """One page of the accounts whose name contains `search`, in any case; a page beyond the last is the last one."""
    rows = await list_account_usage(store, usages, now)
    return await asyncio.to_thread(_page, rows, search.casefold(), sort, page)


def _page(rows: list[AccountUsage], search: str, sort: AccountSort, page: int) -> AccountsPage:
    found = [row for row in rows if search in row.account.name.casefold()]
    if sort is not AccountSort.NAME:  # they are sorted by name, and sorting keeps the order of ties
        found.sort(key=_SORT_KEYS[sort])
    pages = max(1, -(-len(found) // PAGE_SIZE))
    page = min(max(1, page), pages)
    return AccountsPage(found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], len(found), page, pages)


_SORT_KEYS: Mapping[AccountSort, Callable[[AccountUsage], float]] = {
    AccountSort.SHARE: lambda row: -row.share,
    AccountSort.REFUSED: lambda row: -row.refused,
    AccountSort.NEWEST: lambda row: -row.account.created_at,
}


async def busiest_accounts(store: Store, usages: UsagesSource, now: float, limit: int) -> list[AccountUsage]:
    """The accounts that have used the largest share of a window at `now` (Unix seconds); without unused ones."""
    found = await list_account_usage(store, usages, now)
    used = [each for each in found if each.share > 0]
    return sorted(used, key=lambda each: (-each.share, each.account.name))[:limit]


async def current_bans(store: Store, now: float) -> list[BannedKey]:
    """The bans in force at `now` (Unix seconds), those that end last first; at most 20."""
    bans = sorted((ban for ban in await store.usage.bans() if ban.holds(now)), key=lambda ban: -ban.until)
    found = []
    for ban in bans[:_MOST_BANS]:
        try:
            found.append(BannedKey(ban, (await store.keys.find(ban.key_id)).account))
        except KeyNotFound:  # after a restore, a running server may still know the key
            continue
    return found


def _day_before(now: float) -> int:
    return Granularity.HOUR.start(now - _REFUSALS_SECONDS)


def _with_usage(
    accounts: Sequence[Account], usages: Mapping[int, Usage], totals: Mapping[int, UsageCounts], now: float
) -> list[AccountUsage]:
    unused, nothing = Usage(), UsageCounts()
    found = []
    for account in accounts:
        usage = usages.get(account.id, unused)
        used = roll_window(usage.minute, MINUTE, now).used, roll_window(usage.day, DAY, now).used
        found.append(AccountUsage(account, *used, totals.get(account.id, nothing).refused))
    return found
