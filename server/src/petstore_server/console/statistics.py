"""Statistics that several pages show and that are expensive with many accounts and orders: read behind the pages."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from petstore_server.console.readings import Cached, Pace, Reading
from petstore_server.domain.accounts import Account
from petstore_server.domain.orders import Status
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Granularity, Usage, UsageCounts
from petstore_server.operations.usage import AccountUsage, UsageReport, report_usage, with_usage
from petstore_server.store import AccessVersion, Store

_KEPT_SECONDS = 30.0  # sums of a day or a week hardly change


class AccountStatistics(NamedTuple):
    """All accounts by name, with their usage; what the windows were charged with, and what was counted in 24 hours."""

    rows: list[AccountUsage]
    windows: Reading[Mapping[int, Usage]]
    totals: Reading[Mapping[int, UsageCounts]]


class Statistics:
    """The statistics of one store. `usage` finds what all accounts have used; `clock` gives Unix seconds."""

    def __init__(
        self, store: Store, usage: Callable[[], Awaitable[Mapping[int, Usage]]], clock: Callable[[], float], pace: Pace
    ) -> None:
        self._store = store
        self._clock = clock
        self._accounts: Sequence[Account] = ()
        self._version: AccessVersion | None = None
        self._windows = Cached(usage, pace)
        self._totals = Cached(self._read_totals, pace)
        self.order_counts: Cached[Mapping[Status, int]] = Cached(store.search.count_by_status, pace)
        """The number of orders with each status."""
        self.day = Cached(lambda: self._read_history(1), pace, _KEPT_SECONDS if pace.rest else 0)
        self.week = Cached(lambda: self._read_history(7), pace, _KEPT_SECONDS if pace.rest else 0)

    async def accounts(self) -> AccountStatistics:
        """All accounts, which are current, with their usage. Raises ServiceUnavailable if the store cannot be read."""
        version = await self._store.access_version()
        windows, totals, accounts = await asyncio.gather(
            self._windows.get(), self._totals.get(), self._read_accounts(version)
        )
        # On a thread, because there may be tens of thousands.
        rows = await asyncio.to_thread(with_usage, accounts, windows.value, totals.value, self._clock())
        return AccountStatistics(rows, windows, totals)

    async def close(self) -> None:
        """Stop reading."""
        for each in (self._windows, self._totals, self.order_counts, self.day, self.week):
            await each.close()

    async def _read_accounts(self, version: AccessVersion) -> Sequence[Account]:
        """The accounts, read again if accounts, keys or bans were changed."""
        if version != self._version:
            self._accounts, self._version = await self._store.accounts.list(), version
        return self._accounts

    async def _read_totals(self) -> Mapping[int, UsageCounts]:
        now = self._clock()
        return await self._store.usage.totals(Granularity.HOUR.start(now - DAY), int(now) + 1)

    async def _read_history(self, days: int) -> UsageReport:
        now = self._clock()
        return await report_usage(self._store, None, now - days * DAY, now, Granularity.HOUR)
