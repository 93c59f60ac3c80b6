"""Usage: lists of accounts with theirs, who is closest to a limit or refused most, and the usage history."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from petstore_server.domain.accounts import Account
from petstore_server.domain.lists import NumberedPage, clamp_page
from petstore_server.domain.timestamps import DAY, MINUTE
from petstore_server.domain.usage import Granularity, KeylessCounts, Usage, UsageCounts
from petstore_server.domain.windows import roll_window
from petstore_server.store import Store

PAGE_SIZE = 50


class AccountSort(StrEnum):
    """The sort keys of a list of accounts: the used share of a limit, requests in all, admitted or refused."""

    NAME = "name"
    MINUTE_SHARE = "minute"
    DAY_SHARE = "share"
    REQUESTS = "requests"
    ADMITTED = "admitted"
    REFUSED = "refused"
    CREATED = "created"


class AccountUsage(NamedTuple):
    """An account, what its windows were charged with, and its requests in 24 hours; None: it is not known."""

    account: Account
    minute: int | None
    day: int | None
    counts: UsageCounts | None

    @property
    def minute_share(self) -> float:
        """The used part of the minute's limit, from 0 to 1; 0 if it is not known."""
        return min(1.0, (self.minute or 0) / self.account.limits.per_minute)

    @property
    def day_share(self) -> float:
        """The used part of the day's limit, from 0 to 1; 0 if it is not known."""
        return min(1.0, (self.day or 0) / self.account.limits.per_day)


def with_usage(
    accounts: Sequence[Account],
    usages: Mapping[int, Usage] | None,
    totals: Mapping[int, UsageCounts] | None,
    now: float,
) -> list[AccountUsage]:
    """The accounts with their usage, by id, at `now` (Unix seconds); most used in the day first, then by name."""
    unused, nothing = Usage(), UsageCounts()
    found = []
    for account in accounts:
        minute = day = None
        if usages is not None:
            usage = usages.get(account.id, unused)
            minute, day = roll_window(usage.minute, MINUTE, now).used, roll_window(usage.day, DAY, now).used
        counts = None if totals is None else totals.get(account.id, nothing)
        found.append(AccountUsage(account, minute, day, counts))
    return sorted(found, key=lambda row: -(row.day or 0))


def page_of_accounts(
    rows: Sequence[AccountUsage],
    matches: Callable[[Account], bool],
    sort: AccountSort,
    number: int,
    *,
    descending: bool,
) -> NumberedPage[AccountUsage]:
    """One page of the accounts that match, ties in the given order."""
    # Sorting keeps the order of ties.
    found = sorted((row for row in rows if matches(row.account)), key=_SORT_KEYS[sort], reverse=descending)
    number, pages = clamp_page(len(found), PAGE_SIZE, number)
    return NumberedPage(found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE], len(found), number, pages)


_SORT_KEYS: Mapping[AccountSort, Callable[[AccountUsage], Any]] = {
    AccountSort.NAME: lambda row: row.account.name,
    AccountSort.MINUTE_SHARE: lambda row: row.minute_share,
    AccountSort.DAY_SHARE: lambda row: row.day_share,
    AccountSort.REQUESTS: lambda row: row.counts.requests if row.counts else 0,
    AccountSort.ADMITTED: lambda row: row.counts.admitted if row.counts else 0,
    AccountSort.REFUSED: lambda row: row.counts.refused if row.counts else 0,
    AccountSort.CREATED: lambda row: row.account.created_at,
}


def top_accounts(rows: Sequence[AccountUsage], sort: AccountSort, limit: int) -> list[AccountUsage]:
    """The accounts with the most of something, ties in the given order; without those that have none of it."""
    value = _SORT_KEYS[sort]
    return [row for row in heapq.nlargest(limit, rows, key=value) if value(row) > 0]


class UsageReport(NamedTuple):
    """The hours or days with requests of one account or of all, by start (Unix seconds), ascending.

    `keyless` has the requests without a valid key. They belong to no account, so it is empty for one account.
    """

    rows: Mapping[int, UsageCounts]
    keyless: Mapping[int, KeylessCounts]


async def report_operations(store: Store, account: str | None, start: float, end: float) -> Mapping[str, UsageCounts]:
    """What an account asked for, or any, in the hours of a period, by operation. Raises AccountNotFound."""
    account_id = None if account is None else (await store.accounts.find(account)).id
    return await store.usage.operations(account_id, Granularity.HOUR.start(start), int(end))


async def report_usage(store: Store, account: str | None, start: float, end: float, by: Granularity) -> UsageReport:
    """The history of an account or of all, from `start` to before `end` (Unix seconds). Raises AccountNotFound."""
    period = by.start(start), int(end)
    account_id = None if account is None else (await store.accounts.find(account)).id
    rows = await store.usage.counts(account_id, *period, by)
    return UsageReport(rows, await store.usage.keyless_history(*period, by) if account is None else {})
