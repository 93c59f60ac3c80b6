"""Limits counted in this process: exact for one process, saved to the store in the background (D12).

Nothing here awaits between reading a count and charging it, so on one event loop every decision is one atomic step.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from petstore_server.domain.bans import BAN_MEMORY, STRIKE_WINDOW, AbuseRecord, Ban, BanPolicy, next_ban, refuse
from petstore_server.domain.keys import Principal
from petstore_server.domain.timestamps import DAY, MINUTE
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import (
    ADDRESS_LIMIT,
    AccountDecision,
    AddressDecision,
    Count,
    evaluate_account,
    evaluate_address,
    evaluate_ban,
    fits,
    roll_window,
)
from petstore_server.limits.counters import STEP_ADMITTED, STEP_BANNED_NOW, Counted

MAX_ADDRESSES = 100_000
_NO_RECORD = AbuseRecord()


class Unsaved(NamedTuple):
    """What a limiter counted and the store does not hold yet: usage by account id, and new bans."""

    usage: Mapping[int, Usage]
    bans: Sequence[Ban]


class _Account:
    """The windows of one account. Both are open as they are for `since` <= now < `until`.

    These are floats, as the time is: to compare it with an integer takes three times as long.
    """

    __slots__ = ("day", "minute", "since", "until")

    def __init__(self) -> None:
        self.minute = Count()
        self.day = Count()
        self.since = self.until = 0.0

    def open(self, minute: int, minute_used: int, day: int, day_used: int) -> None:
        """Continue with the windows that began at these Unix seconds."""
        self.minute.start, self.minute.used = minute, minute_used
        self.day.start, self.day.used = day, day_used
        self.since = float(max(minute, day))
        self.until = float(min(minute + MINUTE, day + DAY))

    def usage(self) -> Usage:
        return Usage(Count(self.minute.start, self.minute.used), Count(self.day.start, self.day.used))


class MemoryLimiter:
    """Counts the requests of one process: never forgets an account's windows, and keeps a bounded number of addresses.

    `clock` returns Unix seconds. `address_limit` is per minute; where it is not ADDRESS_LIMIT, only `outcome` and
    `retry_after` of a decision count. `strikes` and `bans` are those that this process noted since it started.
    `latest_bans` has, by key, also bans that have ended, and at level 0 those that were lifted.
    """

    def __init__(
        self,
        policy: BanPolicy,
        clock: Callable[[], float],
        max_addresses: int = MAX_ADDRESSES,
        address_limit: int = ADDRESS_LIMIT,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._max_addresses = max_addresses
        self._address_limit = address_limit
        self._accounts: defaultdict[int, _Account] = defaultdict(_Account)
        self._abuse: dict[str, AbuseRecord] = {}
        self.latest_bans: dict[str, Ban] = {}
        self._addresses: OrderedDict[str, Count] = OrderedDict()  # oldest window first
        self._unsaved_accounts: set[int] = set()
        self._unsaved_bans: list[Ban] = []
        self.strikes = 0
        self.bans = 0

    async def admit(self, principal: Principal, *, charge: bool = True) -> AccountDecision:
        """As `decide`: this limiter never waits."""
        return self.decide(principal, charge=charge)

    def decide(self, principal: Principal, *, charge: bool = True) -> AccountDecision:
        """Charge both windows of the key's account, or neither; note a strike, and ban a key that earned it.

        Without `charge`, only read the windows and the ban: the decision admits all but a banned key.
        """
        now = self._clock()
        account = self._accounts[principal.account_id]
        minute, day = account.minute, account.day
        if not account.since <= now < account.until:
            minute, day = roll_window(minute, MINUTE, now), roll_window(day, DAY, now)
            if now < account.since:  # the clock was set back: the windows stay where they were moved to
                account.open(minute.start, minute.used, day.start, day.used)
                self._unsaved_accounts.add(principal.account_id)
        ban = self.latest_bans.get(principal.key_id)
        if ban is not None and ban.holds(now):
            return evaluate_ban(ban, minute, day, principal.limits, now)
        if not charge:
            return evaluate_account(True, minute, day, principal.limits, now)
        if not fits(minute, day, principal.limits):
            return self._refuse(principal, minute, day, now)
        if minute is not account.minute or day is not account.day:  # a new window, which this request opens
            account.open(minute.start, minute.used, day.start, day.used)
        account.minute.used += 1
        account.day.used += 1
        if principal.account_id not in self._unsaved_accounts:  # spares most requests the call
            self._unsaved_accounts.add(principal.account_id)
        return evaluate_account(True, account.minute, account.day, principal.limits, now)

    async def admit_address(self, address: str, *, charge: bool = True) -> AddressDecision:
        """Charge the window of an address (as text; IPv6 by /64) whose client has no valid key, or only read it.

        When the table is full, a new address takes the place of the oldest window, so that a flood of addresses locks
        no other one out.
        """
        now = self._clock()
        self._drop_ended_windows(now)
        known = self._addresses.get(address)
        count = roll_window(known or Count(), MINUTE, now)
        admitted = not charge or count.used < self._address_limit
        if charge and admitted:
            if known is None and len(self._addresses) >= self._max_addresses:
                self._addresses.popitem(last=False)
            count = Count(count.start, count.used + 1)
        if (charge and admitted) or (known is not None and now < known.start):  # the clock was set back: it stays there
            self._addresses[address] = count
            if known is not None and known.start != count.start:
                self._addresses.move_to_end(address)  # a new window: the oldest stay in front
        return evaluate_address(admitted, count, now)

    def follow(self, principal: Principal, now: float, counted: Counted) -> AccountDecision:
        """Decide by what shared counters counted at their time `now`, and take it over, to continue from there."""
        account = self._accounts[principal.account_id]
        account.open(counted.minute, counted.minute_used, counted.day, counted.day_used)
        self.strikes += counted.struck
        if counted.level:
            ban = Ban(principal.key_id, counted.began, counted.until, counted.level, self._policy.strikes)
            decision = evaluate_ban(ban, account.minute, account.day, principal.limits, now)
            if counted.step == STEP_BANNED_NOW:
                self._note_ban(ban)
        else:
            admitted = counted.step == STEP_ADMITTED
            decision = evaluate_account(admitted, account.minute, account.day, principal.limits, now)
        ahead = round(self._clock() - now)
        if ahead:  # by the clock of this process, the windows may even seem to have ended long ago
            account.open(counted.minute + ahead, counted.minute_used, counted.day + ahead, counted.day_used)
        return decision

    def load(self, usage: Mapping[int, Usage], bans: Iterable[Ban]) -> None:
        """Start from what the store holds. Called once, before any request."""
        for account_id, (minute, day) in usage.items():
            self._accounts[account_id].open(minute.start, minute.used, day.start, day.used)
        self.replace_bans(bans)

    def replace_bans(self, bans: Iterable[Ban]) -> None:
        """Take over the store's bans; those not saved yet stay. Any other was lifted."""
        lifted = {key_id: Ban(key_id, ban.began, until=0, level=0) for key_id, ban in self.latest_bans.items()}
        self.latest_bans = lifted | {ban.key_id: ban for ban in (*bans, *self._unsaved_bans)}

    def take_unsaved(self) -> Unsaved:
        """Return what is to be saved. Follow with `saved`, or with `put_back` if that failed."""
        usage = {account_id: self._accounts[account_id].usage() for account_id in self._unsaved_accounts}
        self._unsaved_accounts.clear()
        return Unsaved(usage, tuple(self._unsaved_bans))

    def saved(self, unsaved: Unsaved) -> None:
        """Note that this is in the store now."""
        del self._unsaved_bans[: len(unsaved.bans)]

    def put_back(self, unsaved: Unsaved) -> None:
        """Note that this was not saved, and is to be taken again. Its bans were never removed."""
        self._unsaved_accounts.update(unsaved.usage)

    def forget(self) -> None:
        """Drop expired bans and strikes, so that memory stays bounded."""
        now = self._clock()
        bans, records = self.latest_bans.items(), self._abuse.items()
        self.latest_bans = {key_id: ban for key_id, ban in bans if now < max(ban.until, ban.began + BAN_MEMORY)}
        self._abuse = {
            key_id: record
            for key_id, record in records
            if now < record.retry_at or (record.strikes and now < record.strikes[-1] + STRIKE_WINDOW)
        }

    def _refuse(self, principal: Principal, minute: Count, day: Count, now: float) -> AccountDecision:
        decision = evaluate_account(False, minute, day, principal.limits, now)
        key_id = principal.key_id
        known = self._abuse.get(key_id, _NO_RECORD)
        self._abuse[key_id], struck, banned = refuse(known, now, decision.shown.reset, self._policy)
        self.strikes += struck
        if not banned:
            return decision
        ban = next_ban(self.latest_bans.get(key_id), key_id, now, self._policy)
        self._note_ban(ban)
        return evaluate_ban(ban, minute, day, principal.limits, now)

    def _note_ban(self, ban: Ban) -> None:
        self.bans += 1
        self._unsaved_bans.append(ban)
        self.latest_bans[ban.key_id] = ban

    def _drop_ended_windows(self, now: float) -> None:
        """Remove up to two of the oldest windows: twice as many as one request can add."""
        for _ in range(2):
            oldest = next(iter(self._addresses), None)
            if oldest is None or 0 <= now - self._addresses[oldest].start < MINUTE:
                return
            count = self._addresses.pop(oldest)
            if now < count.start:  # the clock was set back
                self._addresses[oldest] = roll_window(count, MINUTE, now)
