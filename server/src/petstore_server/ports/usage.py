"""What the store keeps of usage: current windows, bans, and the usage history."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from petstore_server.domain.bans import Ban
from petstore_server.domain.usage import NO_ACTIVITY, Activity, Granularity, KeylessRow, UsageCounts, UsageRow
from petstore_server.domain.windows import Count


class Usage(NamedTuple):
    """What an account has used of its windows."""

    minute: Count = Count()
    day: Count = Count()


class UsageStore(Protocol):
    """What a limiter in process memory saves in the store, so that it survives a restart (D12)."""

    async def find(self, account_id: int) -> Usage:
        """Return what the account has used, as last saved."""

    async def all(self) -> Mapping[int, Usage]:
        """Return what each account (by id) has used, as last saved."""

    async def bans(self) -> Sequence[Ban]:
        """Return the latest ban of each key that has one, including ended ones, which lengthen the next."""

    async def save(self, usage: Mapping[int, Usage], bans: Sequence[Ban], activity: Activity = NO_ACTIVITY) -> None:
        """Save usage by account id and new bans, and add to the usage history, in one transaction.

        A successor to which a key was rotated after its ban began gets the ban too.
        """

    async def history(self, account_id: int | None, start: int, end: int, by: Granularity) -> list[UsageRow]:
        """The usage history of an account, or the sum of all if it is None: hours or days, ascending.

        All that begin at `start` or later and before `end` (Unix seconds); those without requests are left out.
        """

    async def keyless_history(self, start: int, end: int, by: Granularity) -> list[KeylessRow]:
        """The same for requests without a valid key."""

    async def totals(self, start: int, end: int) -> Mapping[int, UsageCounts]:
        """The usage of each active account (by id) in the hours and days that begin in this time, summed."""

    async def compact(self, hours_before: int, days_before: int) -> bool:
        """Sum the hours of one day that ended before `hours_before` into that day; delete days before `days_before`.

        Both are starts of days in Unix seconds. Returns whether there may be more to do.
        """
