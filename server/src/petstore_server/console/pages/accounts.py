"""Accounts: the list, and the form for a new one."""

import asyncio
from collections.abc import Callable

from starlette.responses import Response

from petstore_server.console.forms import Form, whole_number
from petstore_server.console.lists import account_path, page_number
from petstore_server.console.visit import Visit
from petstore_server.domain.accounts import PLAN_LIMITS, Account, Limits, Plan, check_account_name, plan_limits
from petstore_server.domain.errors import AccountExists, InvalidInput
from petstore_server.domain.notes import check_note
from petstore_server.operations.accounts import create_account
from petstore_server.operations.usage import AccountSort, page_of_accounts

PLANS = [
    (str(plan), f"{plan} ({PLAN_LIMITS[plan].per_minute:,} per minute, {PLAN_LIMITS[plan].per_day:,} per day)")
    for plan in PLAN_LIMITS
] + [(str(plan), f"{plan} (its own limits)") for plan in Plan if plan not in PLAN_LIMITS]


async def list_accounts(visit: Visit) -> Response:
    """All accounts, searched, filtered and sorted, page by page; and the form for a new one."""
    return await _list(visit, Form([("plan", str(Plan.FREE))], "new-"))


async def create(visit: Visit) -> Response:
    """Create an account."""
    form = await visit.form("new-")
    name = form.read("name", _new_name)
    plan, limits = read_plan(form)
    contact, note = form.read("contact", lambda text: check_note(text, "contact")), form.read("note", check_note)
    if name is None or plan is None or limits is None or not form.is_right:
        return await _list(visit, form, 400)
    try:
        await create_account(visit.store, name, plan, limits, visit.actor, contact=contact or "", note=note or "")
    except AccountExists as error:
        form.reject("name", error)
        return await _list(visit, form, 409)
    return visit.done(account_path(name), f"Created the account {name} on the plan {plan}.")


async def _list(visit: Visit, form: Form, status: int = 200) -> Response:
    filters = visit.filters("search", "plan", "state", "sort")
    given = filters.given
    sort = given["sort"] if given.get("sort", "").removeprefix("-") in list(AccountSort) else "name"
    filters.values["sort"] = sort
    statistics = await visit.need(visit.sources.statistics.accounts())
    number = page_number(visit.query.get("page", ""))
    by, descending = AccountSort(sort.removeprefix("-")), sort.startswith("-")
    matches = await _matching(visit, filters)
    page = await asyncio.to_thread(page_of_accounts, statistics.rows, matches, by, number, descending=descending)
    return visit.page(
        "accounts.html",
        status,
        page=page,
        statistics=statistics,
        filters=filters,
        given=given,
        sort=sort,
        plan_filters=list(Plan),
        filtered=bool(given.keys() - {"sort"}),
        form=form,
        plans=PLANS,
    )


async def _matching(visit: Visit, filters: Form) -> Callable[[Account], bool]:
    """Whether an account has a part of its name in any case, a plan, and a state."""
    search, plan, state = filters["search"].casefold(), filters["plan"], filters["state"]
    banned = await visit.need(visit.store.keys.banned_accounts(visit.now)) if state == "banned" else frozenset[int]()

    def matches(account: Account) -> bool:
        is_in_state = account.id in banned if state == "banned" else state in ("", account.state)
        return is_in_state and search in account.name.casefold() and plan in ("", account.plan)

    return matches


def _new_name(text: str) -> str:
    if not text:
        raise InvalidInput("Give the account a name.")
    return check_account_name(text)


def read_plan(form: Form) -> tuple[Plan | None, Limits | None]:
    """The plan and its limits, None where they are wrong."""
    try:
        plan = Plan(form.values["plan"])
    except ValueError:
        form.reject("plan", "Choose a plan.")
        return None, None
    numbers = form.read("per_minute", whole_number), form.read("per_day", whole_number)
    if not form.error("per_minute") and not form.error("per_day"):
        try:
            return plan, plan_limits(plan, *numbers)
        except InvalidInput as error:
            minute, day = numbers
            at_fault = minute is None and day is not None if plan in PLAN_LIMITS else minute is not None and day is None
            form.reject("per_day" if at_fault else "per_minute", error)
    return plan, None
