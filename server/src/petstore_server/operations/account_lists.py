"""Lists of accounts with their usage: who is closest to a limit, who is refused most, who is banned."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from petstore_server.domain.accounts import Account
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import KeyNotFound
from petstore_server.domain.timestamps import DAY, MINUTE
from petstore_server.domain.usage import Usage, UsageCounts
from petstore_server.domain.windows import roll_window
from petstore_server.store import Store

_MOST_BANS = 20
PAGE_SIZE = 50


class AccountSort(StrEnum):
    """The orders of a list of accounts; ties are sorted by name."""

    NAME = "name"
    SHARE = "share"
    REFUSED = "refused"
    NEWEST = "newest"


class AccountUsage(NamedTuple):
    """An account, what its windows were charged with at a time, and its requests in the 24 hours before."""

    account: Account
    minute: int
    day: int
    counts: UsageCounts

    @property
    def share(self) -> float:
        """The used part of the window that is closest to its limit, from 0 to 1."""
        limits = self.account.limits
        return min(1.0, max(self.minute / limits.per_minute, self.day / limits.per_day))

    @property
    def refused(self) -> int:
        """The requests that were refused in the last 24 hours."""
        return self.counts.refused


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


def with_usage(
    accounts: Sequence[Account], usages: Mapping[int, Usage], totals: Mapping[int, UsageCounts], now: float
) -> list[AccountUsage]:
    """The accounts with their usage at `now` (Unix seconds). `usages` and `totals` are by account id."""
    unused, nothing = Usage(), UsageCounts()
    found = []
    for account in accounts:
        usage = usages.get(account.id, unused)
        used = roll_window(usage.minute, MINUTE, now).used, roll_window(usage.day, DAY, now).used
        found.append(AccountUsage(account, *used, totals.get(account.id, nothing)))
    return found


def page_of_accounts(rows: Sequence[AccountUsage], search: str, sort: AccountSort, page: int) -> AccountsPage:
    """One page of the accounts whose name contains `search`, in any case; a page beyond the last is the last one.

    `rows` are sorted by name.
    """
    search = search.casefold()
    found = [row for row in rows if search in row.account.name.casefold()] if search else list(rows)
    if sort is not AccountSort.NAME:  # sorting keeps the order of ties
        found.sort(key=_SORT_KEYS[sort])
    pages = max(1, -(-len(found) // PAGE_SIZE))
    page = min(max(1, page), pages)
    return AccountsPage(found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], len(found), page, pages)


_SORT_KEYS: Mapping[AccountSort, Callable[[AccountUsage], float]] = {
    AccountSort.SHARE: lambda row: -row.share,
    AccountSort.REFUSED: lambda row: -row.refused,
    AccountSort.NEWEST: lambda row: -row.account.created_at,
}


def busiest_accounts(rows: Sequence[AccountUsage], limit: int) -> list[AccountUsage]:
    """The accounts that have used the largest share of a window; without unused ones."""
    return [row for row in heapq.nsmallest(limit, rows, key=_SORT_KEYS[AccountSort.SHARE]) if row.share > 0]


def most_refused_accounts(rows: Sequence[AccountUsage], limit: int) -> list[AccountUsage]:
    """The accounts that were refused most requests; without those that were refused none."""
    return [row for row in heapq.nsmallest(limit, rows, key=_SORT_KEYS[AccountSort.REFUSED]) if row.refused > 0]


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
