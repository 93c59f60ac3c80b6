"""Counts what each account does in each hour, in memory, until it is saved to the usage history.

A request costs two look-ups and one increment.
"""

from collections import defaultdict
from collections.abc import Iterable
from operator import add

from petstore_server.domain.keys import Principal
from petstore_server.domain.usage import Activity, Granularity, KeylessCounts, UsageCounts
from petstore_server.domain.windows import ADMITTED, BANNED, AccountDecision, Decision

_ADMITTED, _REFUSED_MINUTE, _REFUSED_DAY, _REFUSED_BANNED, _CANCELLED = range(5)  # the fields of UsageCounts
_REFUSED_KEY, _REFUSED_ADDRESS = range(2)  # the fields of KeylessCounts

_Hour = tuple[defaultdict[int, list[int]], list[int]]
"""What was counted in one hour, incremented in place: by account, and without a valid key."""


def _new_hour() -> _Hour:
    return defaultdict(lambda: [0] * 5), [0, 0]


class UsageRecorder:
    """Records decisions and cancelled orders; `take` returns what was recorded since the last call."""

    def __init__(self) -> None:
        self._hours: defaultdict[int, _Hour] = defaultdict(_new_hour)
        self._keys: dict[str, int] = {}  # the latest hour in which each was used
        self._keys_seen: set[str] = set()  # in this hour, saved or not
        self._begin_hour(0)

    def decided(self, principal: Principal | None, decision: Decision) -> None:
        """Record the decision on a request; `principal` is None without a valid key."""
        if not self._start <= decision.now < self._end:
            self._begin_hour(decision.now)
        if principal is None:  # without a key, and within the limit of its address, the response is 401
            self._keyless[_REFUSED_KEY if decision.outcome is ADMITTED else _REFUSED_ADDRESS] += 1
            return
        account = self._accounts[principal.account_id]
        if principal.key_id not in self._keys_seen:
            self._keys_seen.add(principal.key_id)
            self._note_key(principal.key_id, self._start)
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
        taken = Activity(
            {
                (account_id, start): UsageCounts(*counts)
                for start, (accounts, _) in self._hours.items()
                for account_id, counts in accounts.items()
            },
            {start: KeylessCounts(*keyless) for start, (_, keyless) in self._hours.items() if any(keyless)},
            self._keys,
        )
        self._hours.clear()
        self._keys = {}
        self._accounts, self._keyless = self._hours[self._start]
        return taken

    def put_back(self, taken: Activity) -> None:
        """Add this to what the next `take` returns."""
        for (account_id, start), counts in taken.accounts.items():
            _increment(self._hours[start][0][account_id], counts)
        for start, refused in taken.keyless.items():
            _increment(self._hours[start][1], refused)
        for key_id, start in taken.keys.items():
            self._note_key(key_id, start)

    def pending(self, account_id: int) -> dict[int, UsageCounts]:
        """What the next `take` would return for the account, by hour."""
        hours = self._hours.items()
        return {start: UsageCounts(*accounts[account_id]) for start, (accounts, _) in hours if account_id in accounts}

    def _begin_hour(self, now: float) -> None:
        self._start = Granularity.HOUR.start(now)
        self._end = self._start + Granularity.HOUR.seconds
        self._accounts, self._keyless = self._hours[self._start]
        self._keys_seen.clear()

    def _note_key(self, key_id: str, start: int) -> None:
        self._keys[key_id] = max(start, self._keys.get(key_id, start))


def _increment(counts: list[int], more: Iterable[int]) -> None:
    counts[:] = map(add, counts, more)


class NoUsageRecorder(UsageRecorder):
    """Records nothing: for a service without a usage history."""

    def decided(self, principal: Principal | None, decision: Decision) -> None:
        """Record nothing."""

    def cancelled(self, principal: Principal) -> None:
        """Record nothing."""
