"""Records the usage of each account and hour in memory, until it is saved to the usage history.

A request costs a few look-ups and two increments: of its decision, and of its response.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from operator import add
from typing import Any, TypeVar

from petstore_server.domain.keys import Principal
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Activity, Granularity, KeylessCounts, UsageCounts, uses_of
from petstore_server.domain.windows import ADMITTED, BANNED, AccountDecision, Decision

MAX_TAKEN = 1_000
"""Counts, and keys, that are taken at a time: PostgreSQL saves them in a small part of the time that it has."""

_ADMITTED, _REFUSED_MINUTE, _REFUSED_DAY, _REFUSED_BANNED = range(4)  # fields of UsageCounts
_RESPONSES = {403: "forbidden", 404: "not_found", 409: "conflict", 410: "gone"}
_CLASSES = ("succeeded", "unchanged", "invalid", "failed")  # of other statuses: 2xx, 3xx, 4xx, 5xx
_RESPONSE_FIELDS = [
    UsageCounts._fields.index(_RESPONSES.get(status, _CLASSES[status // 100 - 2])) for status in range(200, 600)
]
_CANCELLED = UsageCounts._fields.index("cancelled")
_REFUSED_KEY, _REFUSED_ADDRESS = range(2)  # the fields of KeylessCounts

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class UsageRecorder:
    """Records decisions and responses; `take` returns what was recorded since the last call."""

    def __init__(self) -> None:
        self.max_taken = MAX_TAKEN
        # Incremented in place: by account, hour and operation, and by hour without a valid key.
        self._accounts: defaultdict[tuple[int, int, str], list[int]] = defaultdict(
            lambda: [0] * len(UsageCounts._fields)
        )
        self._keyless: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        self._keys: dict[str, int] = {}  # the latest hour in which each was used
        self._keys_seen: set[str] = set()  # in this hour, saved or not
        self._uses: dict[tuple[int, str], int] = {}  # the hours of `Activity.uses` that were taken
        self._begin_hour(0)

    def decided(self, principal: Principal | None, operation: str, decision: Decision) -> None:
        """Record the decision on a request for an operation; `principal` is None without a valid key."""
        if not self._begins <= decision.now < self._ends:
            self._begin_hour(decision.now)
        if principal is None:  # without a key, and within the limit of its address, the response is 401
            self._keyless[self._start][_REFUSED_KEY if decision.outcome is ADMITTED else _REFUSED_ADDRESS] += 1
            return
        counts = self._accounts[principal.account_id, self._start, operation]
        if principal.key_id not in self._keys_seen:
            self._keys_seen.add(principal.key_id)
            self._note_key(principal.key_id, self._start)
        if decision.outcome is ADMITTED:
            counts[_ADMITTED] += 1
        elif decision.outcome is BANNED:
            counts[_REFUSED_BANNED] += 1
        elif isinstance(decision, AccountDecision) and decision.day_shown:
            counts[_REFUSED_DAY] += 1
        else:
            counts[_REFUSED_MINUTE] += 1

    def responded(self, principal: Principal | None, operation: str, status: int, cancelled: bool = False) -> None:
        """Record the response to a request, in the hour of the request or in a later one, unless it was refused.

        `cancelled`: the request cancelled one order.
        """
        if principal is not None and status != 429:
            field = _CANCELLED if cancelled else _RESPONSE_FIELDS[status - 200]
            self._accounts[principal.account_id, self._start, operation][field] += 1

    def take(self) -> Activity:
        """Return what was recorded and not taken yet, `max_taken` of each kind at most.

        Follow with `put_back` if it could not be saved.
        """
        counted = {key: UsageCounts(*counts) for key, counts in self._taken(self._accounts).items()}
        keyless = {start: KeylessCounts(*counts) for start, counts in self._taken(self._keyless).items()}
        uses = {
            (account_id, used): start
            for account_id, start, operation in sorted(counted)
            for used in uses_of(operation)
            if not (known := self._uses.get((account_id, used), 0)) - DAY <= start <= known  # as the store has it
        }
        self._uses |= uses
        return Activity(counted, keyless, self._taken(self._keys), uses)

    def put_back(self, taken: Activity) -> None:
        """Add this to what the next `take` returns."""
        for key, counts in taken.accounts.items():
            _increment(self._accounts[key], counts)
        for start, refused in taken.keyless.items():
            _increment(self._keyless[start], refused)
        for key_id, start in taken.keys.items():
            self._note_key(key_id, start)
        for use in taken.uses:
            self._uses.pop(use, None)

    def forget_saved(self) -> None:
        """Forget what was saved, so that it is recorded again after a restore."""
        self._keys_seen.clear()
        self._uses.clear()

    def pending(self, account_id: int) -> list[tuple[int, UsageCounts]]:
        """The unsaved counts of the account: hours, with the counts of each operation."""
        found = self._accounts.items()
        return [(start, UsageCounts(*counts)) for (account, start, _), counts in found if account == account_id]

    def _taken(self, recorded: dict[_Key, _Value]) -> dict[_Key, _Value]:
        return {key: recorded.pop(key) for key in list(islice(recorded, self.max_taken))}

    def _begin_hour(self, now: float) -> None:
        self._start = Granularity.HOUR.start(now)
        self._begins, self._ends = float(self._start), float(self._start + Granularity.HOUR.seconds)
        self._keys_seen.clear()

    def _note_key(self, key_id: str, start: int) -> None:
        self._keys[key_id] = max(start, self._keys.get(key_id, start))


def _increment(counts: list[int], more: Iterable[int]) -> None:
    counts[:] = map(add, counts, more)


class NoUsageRecorder(UsageRecorder):
    """Records nothing: for a service without a usage history."""

    def decided(self, *_: Any, **__: Any) -> None:
        """Record nothing."""

    responded = decided
