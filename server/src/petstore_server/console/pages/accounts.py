"""Accounts: the list, one account, and what can be done with it."""

import asyncio

from starlette.responses import Response

from petstore_server.console.entry import Entry, account_path
from petstore_server.console.forms import FormState, whole_number
from petstore_server.console.pages.account import PLANS, show_account
from petstore_server.console.visit import Visit
from petstore_server.domain.accounts import PLAN_LIMITS, Limits, Plan, check_account_name, plan_limits
from petstore_server.domain.errors import AccountExists, InvalidInput
from petstore_server.domain.transitions import version
from petstore_server.operations import accounts as operations
from petstore_server.operations.account_lists import AccountSort, page_of_accounts

SORTS = {
    AccountSort.NAME: "Name",
    AccountSort.SHARE: "Closest to a limit",
    AccountSort.REFUSED: "Most refused",
    AccountSort.NEWEST: "Newest",
}


async def list_accounts(visit: Visit) -> Response:
    """All accounts, searched and sorted, page by page; and the form for a new one."""
    return await _list(visit, FormState({"plan": str(Plan.FREE)}))


async def create(visit: Visit) -> Response:
    """Create an account."""
    submitted = await visit.form()
    form = FormState({name: submitted[name] for name in ("name", "plan", "per_minute", "per_day")})
    name = form.read("name", _new_name)
    plan, limits = _read_plan(form)
    if name is not None and plan is not None and limits is not None and form.is_right:
        try:
            await operations.create_account(visit.store, name, plan, limits, visit.actor)
            return visit.done(account_path(name), f"Created the account {name} on the plan {plan}.")
        except AccountExists as error:
            form.reject("name", error)
            return await _list(visit, form, 409)
    return await _list(visit, form, 400)


async def show(visit: Visit) -> Response:
    """One account: its windows, its history, its keys and bans, its changes, and forms to change it."""
    account = await visit.store.accounts.find(visit.request.path_params["name"])
    return await show_account(visit, account)


async def change_plan(visit: Visit) -> Response:
    """Change the plan, unless it was changed meanwhile."""
    name, submitted = visit.request.path_params["name"], await visit.form()
    form = FormState({each: submitted[each] for each in ("plan", "per_minute", "per_day")})
    plan, limits = _read_plan(form)
    if plan is None or limits is None or not form.is_right:
        return await show_account(visit, await visit.store.accounts.find(name), plan_form=form, status=400)
    await operations.set_plan(visit.store, name, plan, limits, visit.actor, seen=submitted["seen"])
    shown = f"{limits.per_minute:,} requests per minute and {limits.per_day:,} per day"
    return visit.done(account_path(name), f"{name} is on the plan {plan} now: {shown}.")


async def ask_suspend(visit: Visit) -> Response:
    """Ask before an account is suspended."""
    account = await visit.store.accounts.find(visit.request.path_params["name"])
    return visit.page(
        "confirm.html",
        title=f"Suspend {account.name}?",
        text="All its keys stop working within a second, on every server: requests get 401 invalid_api_key. "
        "Its usage and its keys are kept, and you can resume it at any time.",
        action="Suspend",
        target=f"{account_path(account.name)}/suspend",
        back=account_path(account.name),
        fields=[("seen", version(account))],
        subjects=[],
    )


async def suspend(visit: Visit) -> Response:
    """Suspend an account, unless it was changed meanwhile."""
    name, submitted = visit.request.path_params["name"], await visit.form()
    await operations.suspend_account(visit.store, name, visit.actor, seen=submitted["seen"])
    return visit.done(account_path(name), f"Suspended {name}: its keys do not work until you resume it.")


async def resume(visit: Visit) -> Response:
    """Resume an account, unless it was changed meanwhile."""
    name, submitted = visit.request.path_params["name"], await visit.form()
    await operations.resume_account(visit.store, name, visit.actor, seen=submitted["seen"])
    return visit.done(account_path(name), f"Resumed {name}: its keys work again.")


async def _list(visit: Visit, form: FormState, status: int = 200) -> Response:
    query = visit.query
    sort = AccountSort(query["sort"]) if query.get("sort", "") in SORTS else AccountSort.NAME
    number = query.get("page", "")
    search = query.get("search", "").strip()
    rows, known = await visit.services.statistics.accounts()
    page_number = int(number[:9]) if number.isascii() and number.isdigit() else 1
    page = await asyncio.to_thread(page_of_accounts, rows, search, sort, page_number)
    return visit.page(
        "accounts.html",
        status,
        page=page,
        usage_known=known,
        search=FormState({"search": search, "sort": str(sort)}),
        sorts=list(SORTS.items()),
        form=form,
        plans=PLANS,
    )


def _new_name(text: str) -> str:
    if not text:
        raise InvalidInput("Give the account a name.")
    return check_account_name(text)


def _read_plan(form: FormState) -> tuple[Plan | None, Limits | None]:
    """The plan and its limits; the numbers are ignored for plans that have their own."""
    try:
        plan = Plan(form.values["plan"])
    except ValueError:
        form.reject("plan", "Choose a plan.")
        return None, None
    if plan in PLAN_LIMITS:
        return plan, PLAN_LIMITS[plan]
    numbers = form.read("per_minute", _limit), form.read("per_day", _limit)
    if form.is_right:
        try:
            return plan, plan_limits(plan, *numbers)
        except InvalidInput as error:
            form.reject("per_minute", error)
    return plan, None


def _limit(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise InvalidInput("The plan enterprise needs this number.")
    return number


ENTRIES = (
    Entry("/accounts", list_accounts),
    Entry("/accounts", create, ("POST",)),
    Entry("/accounts/{name}", show),
    Entry("/accounts/{name}/plan", change_plan, ("POST",)),
    Entry("/accounts/{name}/suspend", ask_suspend),
    Entry("/accounts/{name}/suspend", suspend, ("POST",)),
    Entry("/accounts/{name}/resume", resume, ("POST",)),
)
