"""Accounts, plans and their limits (spec S7; D10, D11)."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple
from unicodedata import category, is_normalized
from unicodedata import name as unicode_name

from petstore_server.domain.errors import AccountClosed, InvalidInput, MissingLimits
from petstore_server.domain.texts import check_note, is_visible, looks_like_key
from petstore_server.domain.transitions import Transition

_PUNCTUATION = " ._@+-&'"
_LOOK_ALIKE = {"LATIN", "CYRILLIC", "GREEK"}  # alphabets with letters that look alike
_MAX_NAME = 100
_MAX_PLAN_LIMIT = 1_000_000_000


class Limits(NamedTuple):
    """Requests admitted in each minute window and each day window."""

    per_minute: int
    per_day: int


class Plan(StrEnum):
    FREE = "free"
    PRO = "pro"
    BUSINESS = "business"
    ENTERPRISE = "enterprise"


PLAN_LIMITS = {
    Plan.FREE: Limits(60, 1_000),
    Plan.PRO: Limits(300, 10_000),
    Plan.BUSINESS: Limits(1_000, 100_000),
}
"""The plans' limits (spec S7.4). Enterprise is absent: its limits are set for each account (D11)."""


class VisibleOrders(StrEnum):
    """Which orders an account sees and may change (D21)."""

    ALL = "all"
    OWN = "own"

    def owner(self, account_id: int) -> int | None:
        """The owner of the orders that this account sees; None if it sees all."""
        return account_id if self is VisibleOrders.OWN else None


@dataclass(frozen=True, slots=True)
class Account:
    """A partner of the store. Keys belong to an account, and limits are counted for it. Times are Unix seconds."""

    id: int
    name: str
    plan: Plan
    limits: Limits
    created_at: float
    suspended_at: float | None = None
    contact: str = ""
    note: str = ""
    closed_at: float | None = None
    orders: VisibleOrders = VisibleOrders.ALL

    @property
    def state(self) -> str:
        """active, suspended or closed."""
        if self.closed_at is not None:
            return "closed"
        return "active" if self.suspended_at is None else "suspended"

    def fields(self) -> dict[str, Any]:
        """Return what can change, as the audit log records it."""
        times = {"suspended_at": self.suspended_at, "closed_at": self.closed_at}
        texts = {"contact": self.contact, "note": self.note}
        return {"plan": str(self.plan), "orders": str(self.orders), **self.limits._asdict(), **times, **texts}


def set_plan(plan: Plan, limits: Limits) -> Transition[Account]:
    """Change the plan. What the account has used stays used (D11)."""
    return Transition("account.set_plan", lambda account: replace(require_open(account), plan=plan, limits=limits))


def suspend(at: float) -> Transition[Account]:
    """Make the account's keys invalid. Suspending again changes nothing (D9)."""
    return Transition("account.suspend", lambda account: replace(account, suspended_at=account.suspended_at or at))


RESUME = Transition[Account]("account.resume", lambda account: replace(require_open(account), suspended_at=None))
"""Make the keys of a suspended account valid again. Raises AccountClosed."""


def edit(contact: str | None, note: str | None, orders: VisibleOrders | None = None) -> Transition[Account]:
    """Change what is not None. Raises InvalidInput; AccountClosed if the orders of a closed account would change."""
    contact, note = contact and check_note(contact, "contact"), note and check_note(note)
    given = (("contact", contact), ("note", note), ("orders", orders))
    changes: dict[str, Any] = {name: value for name, value in given if value is not None}

    def apply(account: Account) -> Account:
        return replace(account if orders is None else require_open(account), **changes)

    return Transition("account.edit", apply)


def close(at: float) -> Transition[Account]:
    """End the account for good; its keys are invalid from then on. Closing again changes nothing."""
    return Transition(
        "account.close",
        lambda account: replace(account, closed_at=account.closed_at or at, suspended_at=account.suspended_at or at),
    )


def require_open(account: Account) -> Account:
    """Return the account unless it is closed. Raises AccountClosed."""
    if account.closed_at is not None:
        raise AccountClosed(account.name)
    return account


def plan_limits(plan: Plan, per_minute: int | None, per_day: int | None) -> Limits:
    """Return the limits of a plan: those of the table, or the given ones for enterprise. Raises InvalidInput."""
    fixed = PLAN_LIMITS.get(plan)
    if fixed is not None:
        if per_minute is not None or per_day is not None:
            raise InvalidInput(f"The plan {plan} has fixed limits; only the plan enterprise takes its own.")
        return fixed
    if per_minute is None or per_day is None:
        raise MissingLimits
    if not 1 <= per_minute <= per_day <= _MAX_PLAN_LIMIT:
        raise InvalidInput(
            f"Limits must satisfy 1 ≤ per minute ≤ per day ≤ {_MAX_PLAN_LIMIT:,}; got {per_minute:,} and {per_day:,}."
        )
    return Limits(per_minute, per_day)


def check_account_name(name: str) -> str:
    """Return the name if it is valid. Raises InvalidInput, which names the character that is not allowed."""
    if looks_like_key(name):
        raise InvalidInput("This is an API key; an account's name is shown in lists and logs.")
    # Letters, digits and marks, such as accents, of any script.
    allowed = [char in _PUNCTUATION or (category(char)[0] in "LNM" and is_visible(char)) for char in name]
    wrong = None if all(allowed) else name[allowed.index(False)]
    if wrong is not None:
        named = wrong if is_visible(wrong) else f"U+{ord(wrong):04X}"
        raise InvalidInput(
            f"{name!r} is not an account name: it has the character {named!r}; use letters, digits, spaces and "
            f"{' '.join(_PUNCTUATION.strip())}."
        )
    if not 0 < len(name) <= _MAX_NAME or category(name[0])[0] not in "LN" or name.endswith(" "):
        raise InvalidInput(
            f"{name!r} is not an account name; use 1 to {_MAX_NAME} characters, the first of them a letter or a "
            "digit, the last of them not a space."
        )
    scripts = [{unicode_name(char, "").split(" ")[0] for char in word} & _LOOK_ALIKE for word in name.split()]
    if not is_normalized("NFC", name) or any(len(alphabets) > 1 for alphabets in scripts):
        raise InvalidInput(f"{name!r} is not an account name: it looks like another; write each word in one alphabet.")
    return name
