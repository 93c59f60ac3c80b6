"""One account: its windows, history, keys and changes, and what can be done with it."""

import asyncio

from starlette.responses import Response

from petstore_server.console.forms import Form
from petstore_server.console.lists import account_path, page_number
from petstore_server.console.pages.accounts import PLANS, read_plan
from petstore_server.console.pages.audit import subjects_of
from petstore_server.console.rendering import minutes
from petstore_server.console.visit import Visit
from petstore_server.domain import accounts as transitions
from petstore_server.domain.accounts import PLAN_LIMITS, Account
from petstore_server.domain.audit import AuditFilters, AuditPage
from petstore_server.domain.keys import DEFAULT_SCOPES, ENDED, ApiKey, Scope
from petstore_server.domain.lists import NumberedPage
from petstore_server.domain.notes import check_note
from petstore_server.domain.transitions import unless_changed
from petstore_server.domain.usage import Granularity, UsageRow
from petstore_server.operations.accounts import close_account, report_windows

KEYS_PAGE = 25
_HOURS, _DAYS = 48, 90
_CHANGES = 20


async def show_account(visit: Visit, account: Account, status: int = 200, **submitted: Form) -> Response:
    """Render the page of an account: `plan_form`, `key_form` and `details_form` may be given as they were submitted."""
    store, now = visit.store, visit.now
    chosen = visit.query.get("keys", "")
    keys, usage, hours, days, changes = await asyncio.gather(
        visit.need(_keys(visit, account, chosen)),
        visit.read(visit.sources.usage_of(account.id)),
        visit.read(store.usage.history(account.id, *_period(now, Granularity.HOUR, _HOURS))),
        visit.read(store.usage.history(account.id, *_period(now, Granularity.DAY, _DAYS))),
        visit.read(account_changes(visit, account)),
    )
    forms = {
        "key_form": Form([("scopes", " ".join(sorted(DEFAULT_SCOPES)))], "key-"),
        "plan_form": _plan_form(account),
        "details_form": Form([("contact", account.contact), ("note", account.note)], "details-"),
    }
    return visit.page(
        "account.html",
        status,
        account=account,
        usage=usage,
        windows=report_windows(account, usage.value, now) if usage.value is not None else [],
        hours=hours,
        hour_bars=_bars(hours.value or [], now, Granularity.HOUR, _HOURS),
        days=days,
        day_bars=_bars(days.value or [], now, Granularity.DAY, _DAYS),
        page=keys,
        ended=ENDED,
        chosen_keys="one" if visit.query.get("key") else chosen,
        scopes=[str(scope) for scope in Scope],
        changes=changes,
        plans=PLANS,
        **(forms | submitted),
    )


async def _keys(visit: Visit, account: Account, chosen: str) -> NumberedPage[ApiKey]:
    """A page of the account's keys, or the one that the URL names."""
    only = visit.query.get("key")
    if only is None:
        usable, number = {"usable": True, "ended": False}.get(chosen), page_number(visit.query.get("page", ""))
        return await visit.store.keys.page(account.id, visit.now, KEYS_PAGE, number, usable=usable)
    key = await visit.store.keys.find(only)
    return NumberedPage([key] if key.account == account.name else [], 1)


async def account_changes(visit: Visit, account: Account) -> tuple[AuditPage, str]:
    """The last changes of the account and its keys, and a sentence about the keys that are left out."""
    subjects, limit = await subjects_of(visit, account)
    return await visit.store.audit.page(AuditFilters(subjects=subjects), _CHANGES), limit


async def show(visit: Visit) -> Response:
    """One account."""
    return await show_account(visit, await _account(visit))


async def change_plan(visit: Visit) -> Response:
    """Change the plan, unless it was changed meanwhile."""
    name, form = visit.request.path_params["name"], await visit.form("plan-")
    plan, limits = read_plan(form)
    if plan is None or limits is None or not form.is_right:
        return await show_account(visit, await _account(visit), plan_form=form, status=400)
    change = unless_changed(transitions.set_plan(plan, limits), form["seen"])
    await visit.store.accounts.change(name, change, visit.actor)
    shown = f"{limits.per_minute:,} requests per minute and {limits.per_day:,} per day"
    return visit.done(account_path(name), f"{name} is on the plan {plan} now: {shown}.")


async def edit(visit: Visit) -> Response:
    """Change the contact and the note."""
    name, form = visit.request.path_params["name"], await visit.form("details-")
    contact, note = form.read("contact", lambda text: check_note(text, "contact")), form.read("note", check_note)
    if not form.is_right:
        return await show_account(visit, await _account(visit), details_form=form, status=400)
    await visit.store.accounts.change(name, transitions.edit(contact, note), visit.actor)
    return visit.done(account_path(name), f"Saved the contact and the note of {name}.")


async def ask_suspend(visit: Visit) -> Response:
    """Ask before an account is suspended."""
    return visit.page("suspend.html", account=await _account(visit))


async def suspend(visit: Visit) -> Response:
    """Suspend an account, unless it was changed meanwhile."""
    name, submitted = visit.request.path_params["name"], await visit.form()
    change = unless_changed(transitions.suspend(visit.now), submitted["seen"])
    await visit.store.accounts.change(name, change, visit.actor)
    return visit.done(account_path(name), f"Suspended {name}: its keys do not work until you resume it.")


async def resume(visit: Visit) -> Response:
    """Resume an account, unless it was changed meanwhile."""
    name, submitted = visit.request.path_params["name"], await visit.form()
    await visit.store.accounts.change(name, unless_changed(transitions.RESUME, submitted["seen"]), visit.actor)
    return visit.done(account_path(name), f"Resumed {name}: its keys work again.")


async def ask_close(visit: Visit) -> Response:
    """Ask before an account is closed."""
    return visit.page("close.html", account=await _account(visit))


async def close(visit: Visit) -> Response:
    """Close an account and revoke its keys."""
    name, _ = visit.request.path_params["name"], await visit.form()
    _, revoked = await close_account(visit.store, name, visit.actor)
    keys = f"{revoked:,} key" + ("" if revoked == 1 else "s")
    return visit.done(account_path(name), f"Closed {name}, and revoked {keys}.")


async def _account(visit: Visit) -> Account:
    return await visit.need(visit.store.accounts.find(visit.request.path_params["name"]))


def _bars(rows: list[UsageRow], now: float, by: Granularity, count: int) -> list[tuple[str, tuple[int, int]]]:
    """The requests admitted and refused in each hour or day."""
    found = {row.start: (row.admitted, row.refused) for row in rows}
    first, end, _ = _period(now, by, count)
    starts = range(first, end, by.seconds)
    return [(minutes(start)[: 16 if by is Granularity.HOUR else 10], found.get(start, (0, 0))) for start in starts]


def _period(now: float, by: Granularity, count: int) -> tuple[int, int, Granularity]:
    """So many hours or days, of which the last has `now` in it."""
    return by.start(now) - (count - 1) * by.seconds, int(now) + 1, by


def _plan_form(account: Account) -> Form:
    fields = [("plan", str(account.plan))]
    if account.plan not in PLAN_LIMITS:
        fields += [("per_minute", f"{account.limits.per_minute:,}"), ("per_day", f"{account.limits.per_day:,}")]
    return Form(fields, "plan-")
