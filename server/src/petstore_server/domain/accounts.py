"""Accounts and plans: who may ask how often (spec S7; D10, D11)."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from petstore_server.domain.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,99}", re.ASCII)
_HIGHEST_LIMIT = 1_000_000_000


class Limits(NamedTuple):
    """Requests admitted in a minute's window and in a day's."""

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
"""The plans' limits (spec S7.4). Enterprise is missing: its limits are set for each account (D11)."""


@dataclass(frozen=True, slots=True)
class Account:
    """A partner of the store; keys belong to it, limits are counted for it. Moments are Unix seconds."""

    id: int
    name: str
    plan: Plan
    limits: Limits
    created_at: float
    suspended_at: float | None = None


def plan_limits(plan: Plan, per_minute: int | None, per_day: int | None) -> Limits:
    """The limits of a plan: the table's, or the account's own for enterprise. Raises InvalidInput."""
    if plan is not Plan.ENTERPRISE:
        if per_minute is not None or per_day is not None:
            raise InvalidInput(f"The plan {plan} has fixed limits; own numbers are for the plan enterprise.")
        return PLAN_LIMITS[plan]
    if per_minute is None or per_day is None:
        raise InvalidInput("The plan enterprise needs its own numbers: give --per-minute and --per-day.")
    if not 1 <= per_minute <= per_day <= _HIGHEST_LIMIT:
        raise InvalidInput(
            f"Limits must satisfy 1 ≤ per minute ≤ per day ≤ {_HIGHEST_LIMIT}; got {per_minute} and {per_day}."
        )
    return Limits(per_minute, per_day)


def check_account_name(name: str) -> str:
    """Return the name if it is usable. Raises InvalidInput."""
    if not _NAME.fullmatch(name) or name.endswith(" "):
        raise InvalidInput(
            f"{name!r} is no account name; use up to 100 letters, digits, spaces and . _ @ + -, "
            "beginning with a letter or digit."
        )
    return name
