"""Limits counted together by any number of processes, and by each alone while the shared counters are gone (D19)."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec
import structlog

from petstore_server.domain.bans import CLOCK_TOLERANCE, Ban
from petstore_server.domain.keys import Principal
from petstore_server.domain.windows import Count, Decision, evaluate_account, evaluate_address, evaluate_ban
from petstore_server.ports import Usage
from petstore_server.ratelimit.memory import MemoryLimiter

BAN_BRIDGE_SECONDS = 10
"""How long the shared counters hold a new ban by themselves: until the store has it and every process has read it."""


class CountersUnavailable(Exception):
    """The shared counters cannot be used now; `refused` says that they do not want us, and waiting will not help."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused


class Latest(NamedTuple):
    """What the store has of a key's latest ban: zeros for none; level 0 with a beginning for one that was lifted."""

    began: int = 0
    until: int = 0
    level: int = 0


class Step(IntEnum):
    """What the counters did with a request."""

    REFUSED = 0
    ADMITTED = 1
    BANNED = 2
    BANNED_NOW = 3


class AccountCount(msgspec.Struct, frozen=True):
    """What was counted for a request with a key, at `now` (Unix seconds): its account's windows, and its ban."""

    now: float
    step: Step
    usage: Usage
    struck: bool
    ban: Ban | None


class AddressCount(msgspec.Struct, frozen=True):
    """What was counted for a request without a valid key."""

    now: float
    step: Step
    window: Count


class Counters(Protocol):
    """Counters outside of this process. Every method may raise CountersUnavailable."""

    async def count(self, principal: Principal, ban: Latest) -> AccountCount:
        """Charge both windows of the key's account, or neither; note a strike, ban a key that earned it."""

    async def count_address(self, address: str, *, charge: bool) -> AddressCount:
        """Charge the window of an address, or only look at it."""

    async def connect(self) -> None:
        """Connect anew, and prove that counting works."""

    async def prove(self) -> None:
        """Prove that counting works."""

    async def close(self) -> None:
        """Let go of the counters."""


class FallbackLimiter:
    """A Limiter over shared counters. While they do not answer, `local` counts for this process alone.

    The first request to meet a fault opens the breaker: from then on no request waits for the counters, until `check`
    has found them in order again.
    """

    def __init__(self, counters: Counters, local: MemoryLimiter) -> None:
        self._counters = counters
        self._local = local
        self._lifted: dict[str, int] = {}  # the beginnings of bans that were lifted of late, by key
        self._fault: str | None = "not connected yet"
        self._log = structlog.get_logger()
        self.local_decisions = 0

    @property
    def strikes(self) -> int:
        return self._local.strikes

    @property
    def bans(self) -> int:
        return self._local.bans

    @property
    def fault(self) -> str | None:
        """Why limits are not exact now; None while they are."""
        return self._fault

    async def admit(self, principal: Principal) -> Decision:
        if self._fault is None:
            try:
                return self._evaluate(
                    principal, await self._counters.count(principal, self._latest_ban(principal.key_id))
                )
            except CountersUnavailable as error:
                self._open(error)
        self.local_decisions += 1
        return await self._local.admit(principal)

    async def admit_address(self, address: str) -> Decision:
        if self._fault is None:
            try:
                return _evaluate_address(await self._counters.count_address(address, charge=True))
            except CountersUnavailable as error:
                self._open(error)
        self.local_decisions += 1
        return await self._local.admit_address(address)

    async def peek_address(self, address: str) -> Decision:
        if self._fault is None:
            try:
                return _evaluate_address(await self._counters.count_address(address, charge=False))
            except CountersUnavailable as error:
                self._open(error)
        return await self._local.peek_address(address)

    async def start(self) -> None:
        """Connect. Counters that are gone are waited for while this process counts alone.

        Raises CountersUnavailable where they refuse us.
        """
        try:
            await self._counters.connect()
        except CountersUnavailable as error:
            if error.refused:
                raise
            self._fault = error.reason
            self._log.error("redis unusable: limits are counted by each process alone", reason=error.reason)
        else:
            self._fault = None

    async def check(self) -> str | None:
        """See whether the counters work, and use them again if they do; return what is wrong, if anything."""
        was = self._fault
        try:
            if was is None:
                await self._counters.prove()
            else:
                await self._counters.connect()
        except CountersUnavailable as error:
            self._open(error)
        else:
            if was is not None:
                self._fault = None
                self._log.info("redis usable again: limits are exact", after=was)
        return self._fault

    def load(self, usage: Mapping[int, Usage], bans: Iterable[Ban]) -> None:
        """Begin with the store's bans; usage is the counters' own."""
        self.replace_bans(bans)

    def replace_bans(self, bans: Iterable[Ban]) -> None:
        """Take the store's word for which bans there are; those not yet saved stay."""
        before = self._local.current_bans()
        self._local.replace_bans(bans)
        after = self._local.current_bans()
        for key_id in before.keys() - after.keys():
            self._lifted[key_id] = before[key_id].began
        for key_id in after.keys() & self._lifted.keys():
            del self._lifted[key_id]

    def take_unsaved(self) -> tuple[dict[int, Usage], list[Ban]]:
        """The bans that are to be saved. Usage is the counters', and what was counted alone is not worth keeping."""
        return {}, self._local.take_unsaved()[1]

    def saved(self, bans: Sequence[Ban]) -> None:
        """These bans are in the store now."""
        self._local.saved(bans)

    def put_back(self, usage: Mapping[int, Usage]) -> None:
        """Nothing: usage is not saved."""

    def forget(self) -> None:
        """Drop what is not needed any more, so that the tables stay small."""
        timestamp = self._local.now() - BAN_BRIDGE_SECONDS - CLOCK_TOLERANCE
        self._lifted = {key_id: began for key_id, began in self._lifted.items() if began > timestamp}
        self._local.forget()

    async def close(self) -> None:
        """Let go of the counters."""
        await self._counters.close()

    def _latest_ban(self, key_id: str) -> Latest:
        ban = self._local.ban(key_id)
        if ban is not None:
            return Latest(ban.began, ban.until, ban.level)
        return Latest(self._lifted[key_id]) if key_id in self._lifted else _NO_BAN

    def _evaluate(self, principal: Principal, counted: AccountCount) -> Decision:
        minute, day = counted.usage
        new = counted.ban if counted.step is Step.BANNED_NOW else None
        self._local.follow(principal, counted.usage, new, struck=counted.struck)
        if counted.ban is not None:
            return evaluate_ban(counted.ban, minute, day, principal.limits, counted.now)
        return evaluate_account(counted.step is Step.ADMITTED, minute, day, principal.limits, counted.now)

    def _open(self, error: CountersUnavailable) -> None:
        """Count alone from now on; of the requests that meet the fault together, the first one logs it."""
        if self._fault is None:
            self._log.error("redis unusable: limits are counted by each process alone", reason=error.reason)
        self._fault = error.reason


_NO_BAN = Latest()


def _evaluate_address(counted: AddressCount) -> Decision:
    return evaluate_address(counted.step is Step.ADMITTED, counted.window, counted.now)
