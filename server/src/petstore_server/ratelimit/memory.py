"""Limits counted in this process: exact for one process, written behind to the store (D12).

Nothing here awaits between reading a count and charging it, so on one event loop every decision is one atomic step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from petstore_server.domain.bans import BAN_MEMORY, STRIKE_WINDOW, AbuseRecord, Ban, BanPolicy, refuse
from petstore_server.domain.keys import Principal
from petstore_server.domain.windows import (
    ADDRESS_LIMIT,
    DAY,
    MINUTE,
    Count,
    Decision,
    evaluate_account,
    evaluate_address,
    evaluate_ban,
    fits,
    roll_window,
)
from petstore_server.ports import Usage

MAX_ADDRESSES = 100_000
_OVERFLOW = ""  # no address is written so
_UNUSED = Usage()


class MemoryLimiter:
    """A Limiter for one process. `clock` gives Unix seconds."""

    def __init__(self, policy: BanPolicy, clock: Callable[[], float], max_addresses: int = MAX_ADDRESSES) -> None:
        self._policy = policy
        self._clock = clock
        self._max_addresses = max_addresses
        self._usage: dict[int, Usage] = {}
        self._abuse: dict[str, AbuseRecord] = {}
        self._addresses: dict[str, Count] = {}  # oldest window first
        self._unsaved_usage: set[int] = set()
        self._unsaved_bans: list[Ban] = []
        self.strikes = 0
        self.bans = 0
        self.local_decisions = 0  # by these counters in place of others: none

    def now(self) -> float:
        """This moment, in Unix seconds."""
        return self._clock()

    async def admit(self, principal: Principal) -> Decision:
        now = self._clock()
        minute, day = self._rolled(principal.account_id, now)
        record = self._abuse.get(principal.key_id)
        if record is not None and record.ban is not None and record.ban.holds(now):
            return evaluate_ban(record.ban, minute, day, principal.limits, now)
        if fits(minute, day, principal.limits):
            minute, day = Count(minute.start, minute.used + 1), Count(day.start, day.used + 1)
            self._usage[principal.account_id] = Usage(minute, day)
            self._unsaved_usage.add(principal.account_id)
            return evaluate_account(True, minute, day, principal.limits, now)
        decision = evaluate_account(False, minute, day, principal.limits, now)
        ban = self._refuse(principal.key_id, now, decision.shown.reset)
        return decision if ban is None else evaluate_ban(ban, minute, day, principal.limits, now)

    async def admit_address(self, address: str) -> Decision:
        now = self._clock()
        slot, count = self._address_window(address, now)
        if count.used >= ADDRESS_LIMIT:
            return evaluate_address(False, count, now)
        charged = Count(count.start, count.used + 1)
        if self._addresses.get(slot, charged).start != charged.start:
            del self._addresses[slot]  # a new window goes to the end: the oldest stay in front
        self._addresses[slot] = charged
        return evaluate_address(True, charged, now)

    async def peek_address(self, address: str) -> Decision:
        now = self._clock()
        return evaluate_address(True, self._address_window(address, now)[1], now)

    def load(self, usage: Mapping[int, Usage], bans: Iterable[Ban]) -> None:
        """Begin with what an earlier process saved."""
        self._usage.update(usage)
        self.replace_bans(bans)

    def replace_bans(self, bans: Iterable[Ban]) -> None:
        """Take the store's word for which bans there are; those not yet saved stay."""
        current = {ban.key_id: ban for ban in bans} | {ban.key_id: ban for ban in self._unsaved_bans}
        for key_id, record in self._abuse.items():
            record.ban = current.pop(key_id, None)
        for key_id, ban in current.items():
            self._abuse[key_id] = AbuseRecord(ban=ban)

    def ban(self, key_id: str) -> Ban | None:
        """The latest ban of the key, as far as it is known."""
        record = self._abuse.get(key_id)
        return None if record is None else record.ban

    def current_bans(self) -> dict[str, Ban]:
        """The latest ban of each key that has one, by key."""
        return {key_id: record.ban for key_id, record in self._abuse.items() if record.ban is not None}

    def follow(self, principal: Principal, usage: Usage, ban: Ban | None, *, struck: bool) -> None:
        """Know what was counted elsewhere, to go on from there; a ban that it earned is to be saved."""
        self._usage[principal.account_id] = usage
        self.strikes += struck
        if ban is not None:
            self.bans += 1
            self._unsaved_bans.append(ban)
            self._abuse.setdefault(principal.key_id, AbuseRecord()).ban = ban

    @property
    def fault(self) -> str | None:
        """Nothing can be wrong with counting in process."""
        return None

    async def check(self) -> str | None:
        return None

    async def start(self) -> None:
        """Nothing is to be connected to."""

    async def close(self) -> None:
        """Nothing is to be let go of."""

    def take_unsaved(self) -> tuple[dict[int, Usage], list[Ban]]:
        """What is to be saved. Bans stay so until `saved`; usage that could not be saved goes to `put_back`."""
        usage = {account_id: self._usage[account_id] for account_id in self._unsaved_usage}
        self._unsaved_usage.clear()
        return usage, list(self._unsaved_bans)

    def saved(self, bans: Sequence[Ban]) -> None:
        """These bans are in the store now."""
        del self._unsaved_bans[: len(bans)]

    def put_back(self, usage: Mapping[int, Usage]) -> None:
        """This usage was not saved, and is to be taken again."""
        self._unsaved_usage.update(usage)

    def forget(self) -> None:
        """Drop the conduct of keys that have behaved for long enough, so that the table stays small."""
        now = self._clock()
        for key_id, record in list(self._abuse.items()):
            ban, strikes = record.ban, record.strikes
            if strikes and now - strikes[-1] < STRIKE_WINDOW:
                continue
            if record.retry_at <= now and (ban is None or now >= max(ban.until, ban.began + BAN_MEMORY)):
                del self._abuse[key_id]

    def _rolled(self, account_id: int, now: float) -> tuple[Count, Count]:
        minute, day = self._usage.get(account_id, _UNUSED)
        return roll_window(minute, MINUTE, now), roll_window(day, DAY, now)

    def _refuse(self, key_id: str, now: float, retry_at: float) -> Ban | None:
        record = self._abuse.get(key_id)
        if record is None:
            record = self._abuse[key_id] = AbuseRecord()
        ban = refuse(record, key_id, now, retry_at, self._policy)
        self.strikes += ban is not None or now in record.strikes[-1:]
        if ban is not None:
            self.bans += 1
            self._unsaved_bans.append(ban)
        return ban

    def _address_window(self, address: str, now: float) -> tuple[str, Count]:
        """The table's slot for the address, and its settled window; a full table shares one slot."""
        self._drop_ended_windows(now)
        known = self._addresses.get(address)
        if known is None and len(self._addresses) >= self._max_addresses:
            address, known = _OVERFLOW, self._addresses.get(_OVERFLOW)
        return address, roll_window(known or Count(), MINUTE, now)

    def _drop_ended_windows(self, now: float) -> None:
        """Make room at the old end: two at a time is faster than one request can fill."""
        for _ in range(2):
            oldest = next(iter(self._addresses), None)
            if oldest is None or 0 <= now - self._addresses[oldest].start < MINUTE:
                return
            del self._addresses[oldest]
