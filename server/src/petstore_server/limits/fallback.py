"""Limits counted by any number of processes together, and by each process on its own during an outage (D19)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from petstore_server.domain.bans import CLOCK_TOLERANCE, Ban, BanPolicy
from petstore_server.domain.keys import Principal
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import Decision, evaluate_account, evaluate_ban
from petstore_server.limits.counters import BAN_BRIDGE_SECONDS, NO_BAN, Counted, CountersUnavailable, StoredBan
from petstore_server.limits.memory import MemoryLimiter, Unsaved

if TYPE_CHECKING:
    from petstore_server.limits.redis import RedisCounters  # an extra, installed where it is needed

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
        self._since: int | None = None  # what the counters last said of when they began

    async def start(self) -> None:
        """Connect. If the counters do not respond, this process counts locally until they do.

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

    async def admit(self, principal: Principal, *, charge: bool = True) -> Decision:
        if self.fault is None:
            try:
                now, counted = await self._counters.count(principal, self._stored_ban(principal.key_id), charge=charge)
            except CountersUnavailable as error:
                self._open(error)
            else:
                return self._evaluate(principal, now, counted, charge=charge)
        self.local_decisions += charge
        return await super().admit(principal, charge=charge)

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
            if before is not None:
                await self._counters.connect()
            now, since = await self._counters.prove()
        except CountersUnavailable as error:
            self._open(error)
        else:
            if self._since not in (None, since):
                self.losses += 1
                _log.warning("redis lost its counts: windows start again")
            self._since, self.clock_ahead = since, self._clock() - now
            if before is not None:
                self.fault = None
                _log.info("redis usable again: limits are exact", extra={"after": before})
        return self.fault

    async def newest(self, name: str, number: int) -> int:
        """Share the newest timeline or time that was seen. Without the counters, it is the given one."""
        if self.fault is None:
            with suppress(CountersUnavailable):  # requests that are counted report the fault
                return await self._counters.newest(name, number)
        return number

    def replace_bans(self, bans: Iterable[Ban]) -> None:
        before = self._current_bans()
        super().replace_bans(bans)
        after = self._current_bans()
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

    def _current_bans(self) -> dict[str, Ban]:
        return {key_id: record.ban for key_id, record in self._abuse.items() if record.ban is not None}

    def _stored_ban(self, key_id: str) -> StoredBan:
        record = self._abuse.get(key_id)
        if record is not None and record.ban is not None:
            return record.ban.began, record.ban.until, record.ban.level
        return (self._lifted[key_id], 0, 0) if key_id in self._lifted else NO_BAN

    def _evaluate(self, principal: Principal, now: float, counted: Counted, *, charge: bool) -> Decision:
        """Decide by the shared counts, and take them over, to continue from there in an outage."""
        account = self._accounts[principal.account_id]
        account.open(counted.minute, counted.minute_used, counted.day, counted.day_used)
        self.strikes += counted.struck
        if counted.level:
            ban = Ban(principal.key_id, counted.began, counted.until, counted.level, self._policy.strikes)
            decision = evaluate_ban(ban, account.minute, account.day, principal.limits, now, refused=charge)
            if counted.banned_now:
                self._note_ban(ban)
        else:
            decision = evaluate_account(counted.admitted, account.minute, account.day, principal.limits, now)
        ahead = round(self._clock() - now)
        if ahead:  # by the clock of this process, the windows may even seem to have ended long ago
            account.open(counted.minute + ahead, counted.minute_used, counted.day + ahead, counted.day_used)
        return decision

    def _open(self, error: CountersUnavailable) -> None:
        """Count locally from now on; of the requests that meet the fault together, the first one logs it."""
        if self.fault is None:
            _log.error("redis unusable: each process counts limits by itself", extra={"reason": error.reason})
        self.fault = error.reason
