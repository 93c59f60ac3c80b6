"""What clients saw, and whether one order of events explains it: each order linearizable, each key with one order."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import NamedTuple

ABSENT, PENDING, CANCELLED, SHIPPED = "absent", "pending", "cancelled", "shipped"
PLACE, CANCEL, SHIP, READ = "place", "cancel", "ship", "read"
EFFECTS = {PLACE: (ABSENT, PENDING), CANCEL: (PENDING, CANCELLED), SHIP: (PENDING, SHIPPED)}
"""The states before and after an action that changes one."""
UNKNOWN = "unknown"
"""The result of a request without a response, or with 503: it may have had its effect, or have it later."""


class Operation(NamedTuple):
    """One request about one order: its begin and end in seconds, and what was returned.

    The result is the state that it leaves. A request that changed no state, because it was refused for the state or
    changes something else, is a `read` of the state that the response shows.
    """

    began: float
    ended: float
    action: str
    result: str


def next_states(state: str, operation: Operation) -> list[str]:
    """The states that an operation may leave, given its result; none if it cannot have that result."""
    _, _, action, result = operation
    if action == READ:
        return [state] if result == state else []
    before, after = EFFECTS[action]
    if result == UNKNOWN:
        return [state, after] if state == before else [state]
    return [after] if state == before else []


def is_linearizable(operations: Iterable[Operation], last: str) -> bool:
    """Whether the operations have an order, in which none that ended comes after one that began later, to `last`."""
    given = sorted(operations)

    @cache
    def explain(left: frozenset[int], state: str) -> bool:
        if not left:
            return state == last
        first_end = min(given[number].ended for number in left)
        return any(
            explain(left - {number}, following)
            for number in left
            if given[number].began <= first_end
            for following in next_states(state, given[number])
        )

    return explain(frozenset(range(len(given))), ABSENT)


@dataclass
class History:
    """What all clients of a run saw. Times are seconds of one monotonic clock."""

    operations: dict[int, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    placed: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    attempts: dict[str, tuple[int, float]] = field(default_factory=dict)
    """For each idempotency key the pet that its order is for, which no other is for, and its first attempt's begin."""
    followed: list[dict[int, str]] = field(default_factory=list)
    """For each follower the state of each order that it knows at the end."""
    followed_own: list[tuple[str, dict[int, str]]] = field(default_factory=list)
    """The same for each follower with an account that sees only its own orders, with the account's name."""
    seen_of_others: list[str] = field(default_factory=list)
    """What an account saw or did of what is not its own, and references that two orders of one owner got."""
    misplaced: list[str] = field(default_factory=list)
    """What followers with tokens got that is not later than what they had: again without a change, or out of order."""
    requests: int = 0
    unknown: int = 0

    def add(self, order_id: int, operation: Operation) -> None:
        self.operations[order_id].append(operation)

    def problems(
        self, truth: Mapping[int, str], pets: Mapping[int, int], owners: Mapping[int, str | None] | None = None
    ) -> list[str]:
        """What no order of events explains.

        `truth` is the state of each order at the end, `pets` what it is for, and `owners` whose it is.
        """
        found = self.seen_of_others[:5] + self.misplaced[:5]
        found += [f"{key} has the orders {sorted(ids)}" for key, ids in self.placed.items() if len(ids) > 1]
        first = dict(self.attempts.values())
        of_pet: dict[int, list[int]] = defaultdict(list)
        for order_id, pet_id in pets.items():
            if pet_id in first:
                of_pet[pet_id].append(order_id)
        found += [f"pet {pet_id} has the orders {ids}" for pet_id, ids in of_pet.items() if len(ids) > 1]
        for order_id, operations in self.operations.items():
            known = pets.get(order_id)
            placing = [Operation(first[known], inf, PLACE, PENDING)] if known in first else []
            ended = min((each.ended for each in operations if each.action == PLACE), default=inf)
            placing = [each._replace(ended=ended) for each in placing]
            others = [each for each in operations if each.action != PLACE]
            if not is_linearizable([*placing, *others], truth.get(order_id, ABSENT)):
                found.append(f"order {order_id}, now {truth.get(order_id, ABSENT)}: {sorted(operations)}")
        for account, states in self.followed_own:
            own = {order_id: truth.get(order_id) for order_id, owner in (owners or {}).items() if owner == account}
            wrong = [order_id for order_id in own.keys() | states.keys() if own.get(order_id) != states.get(order_id)]
            found += [f"a follower of {account} is wrong about the orders {sorted(wrong)[:5]}"] if wrong else []
        for number, states in enumerate(self.followed):
            missed = [order_id for order_id, state in truth.items() if states.get(order_id) != state]
            found += [f"follower {number} has missed the orders {missed[:5]}"] if missed else []
        return found
