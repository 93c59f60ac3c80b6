"""What the columns of a row mean; the same for every engine."""

import json
from functools import lru_cache
from typing import Any

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import InvalidField
from petstore_server.domain.keys import ApiKey, Environment, Principal, Scope
from petstore_server.domain.orders import order_from_fields
from petstore_server.domain.windows import Count
from petstore_server.ports import Usage

_SCOPES = {str(scope): scope for scope in Scope}

ACCOUNT_COLUMNS = "id, name, plan, per_minute, per_day, created_at, suspended_at"


def account_of(row: tuple[Any, ...]) -> Account:
    """An account from ACCOUNT_COLUMNS."""
    account_id, name, plan, per_minute, per_day, created_at, suspended_at = row
    return Account(account_id, name, Plan(plan), Limits(per_minute, per_day), created_at, suspended_at)


def principal_of(row: tuple[Any, ...]) -> Principal:
    """A principal from the key's id, the account's id, name, plan and limits, the key's scopes and its end."""
    key_id, account_id, account, plan, per_minute, per_day, scopes, expires_at = row
    limits = Limits(per_minute, per_day)
    return Principal(key_id, account_id, account, Plan(plan), limits, scopes_of(scopes), expires_at)


def key_of(row: tuple[Any, ...]) -> ApiKey:
    """A key from its columns, the account's name in the place of its id, and its ban's `began, until, level`."""
    key_id, account, digest, environment, scopes, note, created, expires, revoked, rotated_from, *ban = row
    return ApiKey(
        key_id,
        account,
        digest,
        Environment(environment),
        scopes_of(scopes),
        note,
        created,
        expires,
        revoked,
        rotated_from,
        Ban(key_id, *ban) if ban[0] is not None else None,
    )


@lru_cache(maxsize=64)  # there are few sets of scopes, and this is on every request's way
def scopes_of(text: str) -> frozenset[Scope]:
    """The scopes that are kept as names with spaces between; one that only a later release knows grants nothing."""
    return frozenset([_SCOPES[name] for name in text.split() if name in _SCOPES])


def usage_of(minute_start: int, minute_used: int, day_start: int, day_used: int) -> Usage:
    """What an account's windows were charged with."""
    return Usage(Count(minute_start, minute_used), Count(day_start, day_used))


def order_problem(order_id: int, record: str, status: str) -> str | None:
    """What is wrong with an order as it is kept: it must be what the same fields would be written as."""
    try:
        order = order_from_fields({**json.loads(record), "status": status})
    except (ValueError, TypeError, InvalidField) as error:
        return f"has a record that cannot be read ({error})"
    if order.id != order_id:
        return f"has a record that names order {order.id}"
    return None if order.record() == record else "has a record in another form than the service writes"
