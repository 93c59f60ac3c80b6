"""Counts what each account does in the current hour, in memory, until it is saved to the usage history.

A request costs two look-ups and one increment.
"""

from collections import defaultdict

from petstore_server.domain.keys import Principal
from petstore_server.domain.usage import NO_ACTIVITY, Activity, Granularity, KeylessCounts, UsageCounts, add
from petstore_server.domain.windows import ADMITTED, BANNED, AccountDecision, Decision

_ADMITTED, _REFUSED_MINUTE, _REFUSED_DAY, _REFUSED_BANNED, _CANCELLED = range(5)  # the fields of UsageCounts


class UsageRecorder:
    """Records decisions and cancelled orders; `take` returns what was recorded since the last call."""

    def __init__(self) -> None:
        self._hour = self._next_hour = 0
        self._accounts: defaultdict[int, list[int]] = defaultdict(lambda: [0] * 5)  # incremented in place
        self._keys_seen: set[str] = set()  # in this hour, saved or not
        self._keys: dict[str, int] = {}
        self._refused_key = self._refused_address = 0
        self._earlier = NO_ACTIVITY  # of earlier hours, and what could not be saved

    def decided(self, principal: Principal | None, decision: Decision) -> None:
        """Record the decision on a request; `principal` is None without a valid key."""
        if not self._hour <= decision.now < self._next_hour:
            self._begin_hour(decision.now)
        if principal is None:
            if decision.outcome is ADMITTED:  # within the limit of its address, and then 401
                self._refused_key += 1
            else:
                self._refused_address += 1
            return
        account = self._accounts[principal.account_id]
        if principal.key_id not in self._keys_seen:
            self._keys_seen.add(principal.key_id)
            self._keys[principal.key_id] = self._hour
        if decision.outcome is ADMITTED:
            account[_ADMITTED] += 1
        elif decision.outcome is BANNED:
            account[_REFUSED_BANNED] += 1
        elif isinstance(decision, AccountDecision) and decision.day_shown:
            account[_REFUSED_DAY] += 1
        else:
            account[_REFUSED_MINUTE] += 1

    def cancelled(self, principal: Principal) -> None:
        """Record a cancelled order, in the hour of its request or in the next one."""
        self._accounts[principal.account_id][_CANCELLED] += 1

    def take(self) -> Activity:
        """Return what was recorded and not taken yet. Follow with `put_back` if it could not be saved."""
        self._close_hour()
        taken, self._earlier = self._earlier, NO_ACTIVITY
        return taken

    def put_back(self, taken: Activity) -> None:
        """Add this to what the next `take` returns."""
        self._earlier = _sum(taken, self._earlier)

    def pending(self, account_id: int) -> dict[int, UsageCounts]:
        """What the next `take` would return for the account, by hour."""
        self._close_hour()
        return {hour: counts for (account, hour), counts in self._earlier.accounts.items() if account == account_id}

    def _begin_hour(self, now: float) -> None:
        self._close_hour()
        self._keys_seen = set()
        self._hour = Granularity.HOUR.start(now)
        self._next_hour = self._hour + Granularity.HOUR.seconds

    def _close_hour(self) -> None:
        """Move the counts of the current hour to those that `take` returns."""
        keyless = KeylessCounts(self._refused_key, self._refused_address)
        current = Activity(
            {(account_id, self._hour): UsageCounts(*counts) for account_id, counts in self._accounts.items()},
            {self._hour: keyless} if any(keyless) else {},
            self._keys,
        )
        if current:
            self._earlier = _sum(self._earlier, current)
            self._accounts.clear()
            self._keys = {}
            self._refused_key = self._refused_address = 0


class NoUsageRecorder(UsageRecorder):
    """Records nothing: for a service without a usage history."""

    def decided(self, principal: Principal | None, decision: Decision) -> None:
        """Record nothing."""

    def cancelled(self, principal: Principal) -> None:
        """Record nothing."""


def _sum(one: Activity, other: Activity) -> Activity:
    """Both together; of the hours in which a key was last used, the later."""
    if not one:
        return other
    accounts, keyless, keys = dict(one.accounts), dict(one.keyless), dict(one.keys)
    for place, counts in other.accounts.items():
        accounts[place] = add(accounts.get(place, UsageCounts()), counts)
    for hour, refused in other.keyless.items():
        keyless[hour] = add(keyless.get(hour, KeylessCounts()), refused)
    for key_id, hour in other.keys.items():
        keys[key_id] = max(keys.get(key_id, hour), hour)
    return Activity(accounts, keyless, keys)
