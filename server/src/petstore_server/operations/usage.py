"""Reports of the usage history: what an account did, and which accounts are most active, refused, or near a limit."""

from collections.abc import Mapping
from typing import NamedTuple

from petstore_server.domain.usage import Granularity, KeylessRow, Usage, UsageRow
from petstore_server.operations.account_lists import AccountSort, AccountUsage, top_accounts, with_usage
from petstore_server.store import Store


class UsageReport(NamedTuple):
    """The history of one account, or of the service as a whole; ascending, without hours or days that had no requests.

    `keyless` has the requests without a valid key. They belong to no account, so it is None for one account.
    """

    rows: list[UsageRow]
    keyless: list[KeylessRow] | None


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


async def rank_accounts(
    store: Store, usages: Mapping[int, Usage] | None, sort: AccountSort, start: float, now: float, limit: int
) -> list[AccountUsage]:
    """The first accounts of a ranking, at most `limit`, from the hour of `start` until `now` (Unix seconds).

    `usages` is by account id, None if it cannot be read from here. Raises ServiceUnavailable.
    """
    totals = await store.usage.totals(Granularity.HOUR.start(start), int(now) + 1)
    rows = with_usage(await store.accounts.list(), usages, totals, now)
    return top_accounts(rows, sort, limit)
