"""Statistics that several pages show and that are expensive with many accounts and orders."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from petstore_server.console.cache import Cached
from petstore_server.domain.accounts import Account
from petstore_server.domain.orders import Status
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Granularity, Usage, UsageCounts
from petstore_server.operations.account_lists import AccountUsage, with_usage
from petstore_server.store import AccessVersion, Store

T = TypeVar("T")

PATIENCE_SECONDS = 0.02
"""How long a page waits for statistics that are older than they should be, before it shows the old ones."""

FIRST_PATIENCE_SECONDS = 0.25
"""How long a page waits for statistics that were never computed, before it says so."""

_TIMES = 10
"""They are computed in a tenth of the time at most: those of a small store are current, those of a large one not."""


class Statistics:
    """Computes statistics behind the pages; `usages` reads the usage of all accounts by their ids.

    `clock` gives Unix seconds.
    """

    def __init__(
        self, store: Store, usages: Callable[[], Awaitable[Mapping[int, Usage]]], clock: Callable[[], float]
    ) -> None:
        self._patience, self._first_patience = PATIENCE_SECONDS, FIRST_PATIENCE_SECONDS
        self._store = store
        self._clock = clock
        self._accounts: Sequence[Account] = ()
        self._version: AccessVersion | None = None
        self._usages: Cached[Mapping[int, Usage]] = Cached(usages, 0, _TIMES)
        self._totals: Cached[Mapping[int, UsageCounts]] = Cached(self._read_totals, 0, _TIMES)
        self._counts: Cached[Mapping[Status, int]] = Cached(store.search.count_by_status, 0, _TIMES)

    async def accounts(self) -> tuple[list[AccountUsage], bool]:
        """All accounts, by name, with their usage; and whether that is known by now.

        The accounts are current, their usage is a few seconds old.
        """
        version = await self._store.access_version()
        usages_soon, totals_soon = self._soon(self._usages), self._soon(self._totals)
        usages, totals, accounts = await asyncio.gather(usages_soon, totals_soon, self._read_accounts(version))
        known = usages is not None and totals is not None
        # On a thread, because there may be tens of thousands.
        rows = await asyncio.to_thread(with_usage, accounts, usages or {}, totals or {}, self._clock())
        return rows, known

    async def status_counts(self) -> Mapping[Status, int] | None:
        """The number of orders with each status, some seconds old; None if it is not known yet."""
        return await self._soon(self._counts)

    def always_wait(self) -> None:
        """Let every call wait for current statistics, whatever they cost."""
        self._patience = self._first_patience = 60.0
        for each in (self._usages, self._totals, self._counts):
            each.times = 0

    async def close(self) -> None:
        """Stop computing."""
        for each in (self._usages, self._totals, self._counts):
            await each.close()

    async def _soon(self, cached: Cached[T]) -> T | None:
        return await cached.soon(self._first_patience if cached.is_empty else self._patience)

    async def _read_accounts(self, version: AccessVersion) -> Sequence[Account]:
        """The accounts, read again if accounts, keys or bans were changed."""
        if version != self._version:
            self._accounts, self._version = await self._store.accounts.list(), version
        return self._accounts

    async def _read_totals(self) -> Mapping[int, UsageCounts]:
        now = self._clock()
        return await self._store.usage.totals(Granularity.HOUR.start(now - DAY), int(now) + 1)
