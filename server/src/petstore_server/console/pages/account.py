"""The page of one account: its windows, history, keys, bans and changes, and the forms to change it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.responses import Response

from petstore_server.console.changes import change_of
from petstore_server.console.charts import Bar, Chart, Series, chart
from petstore_server.console.forms import FormState
from petstore_server.console.visit import Visit
from petstore_server.domain.accounts import PLAN_LIMITS, Account, Plan
from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.keys import DEFAULT_SCOPES, ENDED, ApiKey, KeyState, Scope
from petstore_server.domain.transitions import version
from petstore_server.domain.usage import Granularity, UsageRow
from petstore_server.operations.accounts import report_windows

_HOURS, _DAYS = 48, 90
_CHANGES = 20
_MOST_SUBJECTS = 200  # keys whose entries are shown with the account's
_SERIES = (Series("Admitted", "answered"), Series("Refused", "refused"))
PLANS = [
    (str(plan), f"{plan} ({PLAN_LIMITS[plan].per_minute:,} per minute, {PLAN_LIMITS[plan].per_day:,} per day)")
    for plan in PLAN_LIMITS
] + [(str(plan), f"{plan} (its own limits)") for plan in Plan if plan not in PLAN_LIMITS]


GRACES = (("0s", "at once"), ("1h", "in 1 hour"), ("24h", "in 24 hours"), ("7d", "in 7 days"), ("30d", "in 30 days"))
"""When a key ends after its rotation."""


class KeyRow(NamedTuple):
    """A key as the page of its account shows it."""

    key: ApiKey
    state: KeyState
    banned: bool
    usable: bool
    rotatable: bool


def key_rows(keys: Sequence[ApiKey], now: float) -> list[KeyRow]:
    """The keys, those that can be used first, newest first."""
    rows = []
    for key in reversed(keys):
        state = key.state(now)
        rotatable = key.rotation_obstacle(now) is None
        rows.append(KeyRow(key, state, key.is_banned(now), state not in ENDED, rotatable))
    return sorted(rows, key=lambda row: not row.usable)


def key_form() -> FormState:
    """The form for a new key, with the default scopes."""
    form = FormState()
    form.values["scopes"] = " ".join(sorted(DEFAULT_SCOPES))
    return form


async def show_account(
    visit: Visit,
    account: Account,
    *,
    plan_form: FormState | None = None,
    new_key: FormState | None = None,
    status: int = 200,
) -> Response:
    """Render the page of an account, with forms that may have been filled in."""
    store, now = visit.store, visit.now
    keys = await store.keys.list(account.name)
    subjects = (f"account:{account.name}", *(f"key:{key.id}" for key in keys[-_MOST_SUBJECTS:]))
    usage, hours, days, changes = await asyncio.gather(
        visit.services.usage_of(account.id),
        store.usage.history(account.id, _start(now, Granularity.HOUR, _HOURS), int(now) + 1, Granularity.HOUR),
        store.usage.history(account.id, _start(now, Granularity.DAY, _DAYS), int(now) + 1, Granularity.DAY),
        store.audit.page(AuditFilters(subjects=subjects), _CHANGES),
    )
    limit = account.limits.per_day
    return visit.page(
        "account.html",
        status,
        account=account,
        windows=report_windows(account, usage, now),
        hours=_history_chart("Requests per hour, last 48 hours", hours, now, Granularity.HOUR, _HOURS, None),
        days=_history_chart("Requests per day, last 90 days", days, now, Granularity.DAY, _DAYS, limit),
        keys=key_rows(keys, now),
        strikes=visit.services.settings.ban_strikes,
        graces=GRACES,
        scopes=[str(scope) for scope in Scope],
        changes=[change_of(entry) for entry in changes.entries],
        more_changes=changes.next is not None,
        plans=PLANS,
        plan_form=plan_form or _plan_form(account),
        key_form=new_key or key_form(),
        seen=version(account),
    )


def _history_chart(
    title: str, rows: list[UsageRow], now: float, by: Granularity, count: int, limit: int | None
) -> Chart:
    found = {row.start: row for row in rows}
    starts = range(_start(now, by, count), int(now) + 1, by.seconds)
    form = "%b %d, %H:00" if by is Granularity.HOUR else "%Y-%m-%d"
    bars = []
    for start in starts:
        row = found.get(start)
        counts = (row.admitted, row.refused) if row is not None else (0, 0)
        bars.append(Bar(datetime.fromtimestamp(start, UTC).strftime(form), counts))
    return chart(title, _SERIES, bars, limit)


def _start(now: float, by: Granularity, count: int) -> int:
    """The start of the first of this many hours or days, of which the last has `now` in it."""
    return by.start(now) - (count - 1) * by.seconds


def _plan_form(account: Account) -> FormState:
    form = {"plan": str(account.plan)}
    if account.plan not in PLAN_LIMITS:
        form |= {"per_minute": str(account.limits.per_minute), "per_day": str(account.limits.per_day)}
    return FormState(form)
