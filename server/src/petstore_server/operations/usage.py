"""Reports of the usage history: what an account did, and which accounts are most active, refused, or near a limit."""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from petstore_server.domain.accounts import Account
from petstore_server.domain.usage import Granularity, KeylessRow, Usage, UsageCounts, UsageRow
from petstore_server.operations.accounts import report_windows
from petstore_server.store import Store

AllUsage = Callable[[], Awaitable[Mapping[int, Usage] | None]]
"""Finds the usage of all accounts by their ids; None if it is counted where it cannot be read from here."""


class TopOrder(StrEnum):
    """What `top_accounts` orders by: requests admitted or refused in the period, or the share of the day's limit."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    SHARE = "share"


class UsageReport(NamedTuple):
    """The history of one account, or of the service as a whole; ascending, without hours or days that had no requests.

    `keyless` has the requests without a valid key. They belong to no account, so it is None for one account.
    """

    rows: list[UsageRow]
    keyless: list[KeylessRow] | None


class TopAccount(NamedTuple):
    """An account with its counts in the period; `share` is the used share of its day's limit now, None if unknown."""

    account: Account
    counts: UsageCounts
    share: float | None


async def report_usage(store: Store, account: str | None, start: float, end: float, by: Granularity) -> UsageReport:
    """The history of an account, or of the service, from the hour or day of `start` until `end` (Unix seconds).

    Raises AccountNotFound, ServiceUnavailable.
    """
    period = by.start(start), int(end) + 1
    if account is not None:
        account_id = (await store.accounts.find(account)).id
        return UsageReport(await store.usage.history(account_id, *period, by), None)
    rows = await store.usage.history(None, *period, by)
    return UsageReport(rows, await store.usage.keyless_history(*period, by))


async def top_accounts(
    store: Store, all_usage: AllUsage, order: TopOrder, start: float, now: float, limit: int
) -> list[TopAccount]:
    """The first accounts in this order, at most `limit`, from the hour of `start` until `now` (Unix seconds).

    Accounts that have nothing to show in this order are left out. Raises ServiceUnavailable.
    """
    totals = await store.usage.totals(Granularity.HOUR.start(start), int(now) + 1)
    usage = await all_usage()
    found = [
        TopAccount(account, totals.get(account.id, UsageCounts()), _share(account, usage, now))
        for account in await store.accounts.list()
    ]
    ranked = sorted(found, key=lambda each: (-_rank(each, order), each.account.name))
    return [each for each in ranked if _rank(each, order) > 0][:limit]


def _share(account: Account, usage: Mapping[int, Usage] | None, now: float) -> float | None:
    if usage is None:
        return None
    _, day = report_windows(account, usage.get(account.id, Usage()), now)
    return day.used / day.limit


def _rank(entry: TopAccount, order: TopOrder) -> float:
    if order is TopOrder.SHARE:
        return entry.share or 0
    return entry.counts.admitted if order is TopOrder.ADMITTED else entry.counts.refused
