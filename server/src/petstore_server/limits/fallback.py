"""Limits counted by any number of processes together, and by each process on its own during an outage (D19)."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from petstore_server.domain.keys import Principal
from petstore_server.domain.windows import AccountDecision, AddressDecision
from petstore_server.limits.counters import CountersUnavailable
from petstore_server.limits.memory import MemoryLimiter

if TYPE_CHECKING:
    from petstore_server.limits.redis import RedisCounters  # an extra, installed where it is needed

_log = logging.getLogger(__name__)


class FallbackLimiter:
    """Asks shared counters. While they do not respond, the limiter of this process, `local`, decides.

    The first request to meet a fault opens the circuit breaker: no request waits for the counters from then on, until
    `check` finds that they work again. `fault` says why limits are not exact now, and `local_decisions` how often that
    was so; `losses`, how often the counters were found to have lost their counts, and `clock_ahead`, by how many
    seconds `clock` (Unix seconds) is ahead of theirs.
    """

    def __init__(self, counters: "RedisCounters", local: MemoryLimiter, clock: Callable[[], float]) -> None:
        self.counters = counters
        self.local = local
        self.fault: str | None = None
        self.local_decisions = self.losses = 0
        self.clock_ahead = 0.0
        self._clock = clock
        self._since: int | None = None  # what the counters last said of when they began

    async def start(self) -> None:
        """Connect. If the counters do not respond, this process counts locally until they do.

        Raises CountersUnavailable if they reject this process.
        """
        try:
            await self.counters.connect()
        except CountersUnavailable as error:
            if error.refused:
                raise
            self._open(error)

    def decide(self, principal: Principal, *, charge: bool = True) -> AccountDecision | None:
        """As `MemoryLimiter.decide`; None if the shared counters decide: then call `admit`."""
        return None if self.fault is None else self._decide_locally(principal, charge)

    async def admit(self, principal: Principal, *, charge: bool = True) -> AccountDecision:
        """As `MemoryLimiter.admit`."""
        if self.fault is None:
            try:
                ban = self.local.latest_bans.get(principal.key_id)
                now, counted = await self.counters.count(principal, ban, charge=charge)
            except CountersUnavailable as error:
                self._open(error)
            else:
                return self.local.follow(principal, now, counted)
        return self._decide_locally(principal, charge)

    def _decide_locally(self, principal: Principal, charge: bool) -> AccountDecision:
        self.local_decisions += charge
        return self.local.decide(principal, charge=charge)

    async def admit_address(self, address: str, *, charge: bool = True) -> AddressDecision:
        """As `MemoryLimiter.admit_address`."""
        if self.fault is None:
            try:
                return await self.counters.count_address(address, charge=charge)
            except CountersUnavailable as error:
                self._open(error)
        self.local_decisions += charge
        return await self.local.admit_address(address, charge=charge)

    async def check(self) -> str | None:
        """Test whether the counters work, and use them again if they do; return what is wrong, if anything."""
        before = self.fault
        try:
            if before is not None:
                await self.counters.connect()
            now, since = await self.counters.prove()
        except CountersUnavailable as error:
            self._open(error)
        else:
            if self._since not in (None, since):
                self.losses += 1
                _log.warning("redis lost its counts")
            self._since, self.clock_ahead = since, self._clock() - now
            if before is not None:
                self.fault = None
                _log.info("redis usable again", extra={"reason": before})
        return self.fault

    async def newest(self, name: str, number: int) -> int:
        """Share the newest timeline or time that was seen. Without the counters, it is the given one."""
        if self.fault is None:
            with suppress(CountersUnavailable):  # requests that are counted report the fault
                return await self.counters.newest(name, number)
        return number

    def _open(self, error: CountersUnavailable) -> None:
        """Count locally from now on; of the requests that meet the fault together, the first one logs it."""
        if self.fault is None:
            _log.error("redis unusable", extra={"reason": error.reason})
        self.fault = error.reason


Limiter = MemoryLimiter | FallbackLimiter
"""Decides on requests: `admit` on those with a valid key, `decide` if that need not wait, `admit_address` on others."""
