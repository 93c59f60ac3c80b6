"""Limits counted by any number of processes together, and by each process on its own during an outage (D19)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from petstore_server.domain.bans import CLOCK_TOLERANCE, Ban, BanPolicy
from petstore_server.domain.keys import Principal
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import Decision, evaluate_account, evaluate_ban
from petstore_server.limits.memory import MemoryLimiter, Unsaved

if TYPE_CHECKING:
    from petstore_server.limits.redis import RedisCounters  # an extra, installed where it is needed

BAN_BRIDGE_SECONDS = 10
"""How long the shared counters hold a new ban: until the store has it and every process has read it."""


class CountersUnavailable(Exception):
    """The shared counters cannot be used now. `refused`: they reject this process, and waiting will not help."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused


StoredBan = tuple[int, int, int]
"""What the store has of a key's latest ban: start, end, level. Level 0 with a start: that ban was lifted."""

NO_BAN: StoredBan = (0, 0, 0)


class WindowCount(msgspec.Struct, frozen=True):
    """A window's start (whole Unix seconds) and what was charged to it; quicker to make than a named tuple."""

    start: int
    used: int


class AccountCount(msgspec.Struct, frozen=True):
    """What was counted for a request with a key, at `now` (Unix seconds): its account's windows, and its ban."""

    now: float
    admitted: bool
    minute: WindowCount
    day: WindowCount
    struck: bool
    ban: Ban | None
    banned_now: bool


_log = logging.getLogger(__name__)


class FallbackLimiter(MemoryLimiter):
    """Asks shared counters. While they do not respond, it counts for this process only.

    The first request to meet a fault opens the circuit breaker: no request waits for the counters from then on, until
    `check` finds that they work again.
    """

    def __init__(self, counters: "RedisCounters", policy: BanPolicy, clock: Callable[[], float]) -> None:
        super().__init__(policy, clock)
        self._counters = counters
        self._lifted: dict[str, int] = {}  # the start of each ban that was lifted recently, by key

    async def start(self) -> None:
        """Connect. If the counters do not respond, this process counts by itself until they do.

        Raises CountersUnavailable if they reject this process.
        """
        try:
            await self._counters.connect()
        except CountersUnavailable as error:
            if error.refused:
                raise
            self._open(error)

    def load(self, store_id: str, usage: Mapping[int, Usage], bans: Iterable[Ban]) -> None:
        """Start with the store's bans. Usage is in the shared counters, under the store's identity."""
        self._counters.use_store(store_id)
        self.replace_bans(bans)

    async def admit(self, principal: Principal) -> Decision:
        if self.fault is None:
            try:
                counted = await self._counters.count(principal, self._stored_ban(principal.key_id))
            except CountersUnavailable as error:
                self._open(error)
            else:
                return self._evaluate(principal, counted)
        self.local_decisions += 1
        return await super().admit(principal)

    async def admit_address(self, address: str, *, charge: bool = True) -> Decision:
        if self.fault is None:
            try:
                return await self._counters.count_address(address, charge=charge)
            except CountersUnavailable as error:
                self._open(error)
        self.local_decisions += charge
        return await super().admit_address(address, charge=charge)

    async def check(self) -> str | None:
        """Test whether the counters work, and use them again if they do; return what is wrong, if anything."""
        before = self.fault
        try:
            if before is None:
                await self._counters.prove()
            else:
                await self._counters.connect()
        except CountersUnavailable as error:
            self._open(error)
        else:
            if before is not None:
                self.fault = None
                _log.info("redis usable again: limits are exact", extra={"after": before})
        return self.fault

    async def newest_timeline(self, store_id: str, timeline: int) -> int:
        """Share the newest timeline of PostgreSQL that was seen. Without the counters, only this process knows it."""
        if self.fault is None:
            with suppress(CountersUnavailable):  # requests that are counted report the fault
                return await self._counters.newest_timeline(store_id, timeline)
        return timeline

    def replace_bans(self, bans: Iterable[Ban]) -> None:
        before = self.current_bans()
        super().replace_bans(bans)
        after = self.current_bans()
        for key_id in before.keys() - after.keys():
            self._lifted[key_id] = before[key_id].began
        for key_id in after.keys() & self._lifted.keys():
            del self._lifted[key_id]

    def take_unsaved(self) -> Unsaved:
        """Return the bans to be saved. Usage is in the shared counters; local counts are not worth keeping."""
        return super().take_unsaved()._replace(usage={})

    def forget(self) -> None:
        """Drop what is no longer needed, so that the tables stay small."""
        oldest = self._clock() - BAN_BRIDGE_SECONDS - CLOCK_TOLERANCE
        self._lifted = {key_id: began for key_id, began in self._lifted.items() if began > oldest}
        super().forget()

    async def close(self) -> None:
        """Close the connection to the counters."""
        await self._counters.close()

    def _stored_ban(self, key_id: str) -> StoredBan:
        ban = self.ban(key_id)
        if ban is not None:
            return ban.began, ban.until, ban.level
        return (self._lifted[key_id], 0, 0) if key_id in self._lifted else NO_BAN

    def _evaluate(self, principal: Principal, counted: AccountCount) -> Decision:
        new = counted.ban if counted.banned_now else None
        ahead = round(self._clock() - counted.now)
        self.follow(principal, _moved(counted.minute, ahead), _moved(counted.day, ahead), new, struck=counted.struck)
        if counted.ban is not None:
            return evaluate_ban(counted.ban, counted.minute, counted.day, principal.limits, counted.now)
        return evaluate_account(counted.admitted, counted.minute, counted.day, principal.limits, counted.now)

    def _open(self, error: CountersUnavailable) -> None:
        """Count locally from now on; of the requests that meet the fault together, the first one logs it."""
        if self.fault is None:
            _log.error("redis unusable: each process counts limits by itself", extra={"reason": error.reason})
        self.fault = error.reason


def _moved(count: WindowCount, seconds: int) -> WindowCount:
    """The window by a clock that is ahead by so many seconds; by that one it may seem to have ended long ago."""
    return WindowCount(count.start + seconds, count.used) if seconds else count
