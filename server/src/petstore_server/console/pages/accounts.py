"""Accounts: the list, each with its windows, history, keys and changes, and what can be done with them."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from starlette.responses import Response

from petstore_server.console.forms import Form, account_path, changed_meanwhile, one_of, whole_number
from petstore_server.console.rendering import SEEN_ORDERS, minutes, plural
from petstore_server.console.visit import Visit
from petstore_server.domain import accounts as rules
from petstore_server.domain.accounts import Account, Limits, Plan, VisibleOrders
from petstore_server.domain.audit import AuditFilters, AuditPage
from petstore_server.domain.errors import AccountExists, ChangedMeanwhile, InvalidInput
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import Status
from petstore_server.domain.texts import check_note
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.transitions import Transition, changed_since, fields_changed_since, unless_changed, version
from petstore_server.domain.usage import DEPRECATED, Granularity, UsageCounts
from petstore_server.domain.webhooks import Webhook
from petstore_server.operations.accounts import report_windows
from petstore_server.operations.audit import account_subjects
from petstore_server.operations.usage import AccountSort, page_of_accounts

_STATES = "active", "suspended", "closed", "banned"
KEYS_PAGE = 25
_HOURS, _DAYS = 48, 90
_CHANGES = 20
_BANS = 3  # that the page of an account shows
_PLAN_FIELDS, _STATE_FIELDS = ("plan", "per_minute", "per_day"), ("suspended_at", "closed_at")


async def list_accounts(visit: Visit, new_form: Form | None = None, status: int = 200) -> Response:
    """All accounts, searched, filtered and sorted, page by page; and the form for a new one, as it was submitted."""
    filters = _filters(visit)
    given = filters.given
    filters.values["sort"] = sort = given.get("sort", AccountSort.NAME)
    statistics = await visit.require(visit.sources.accounts())
    banned = await visit.require(visit.store.keys.banned_accounts(visit.now))
    used = await visit.require(visit.store.usage.used_by(filters["using"])) if filters["using"] else None
    operations = await visit.read(visit.store.usage.users(0))
    by, descending = AccountSort(sort.removeprefix("-")), sort.startswith("-")
    matches = _matching(filters, banned, used)
    page = await asyncio.to_thread(
        page_of_accounts, statistics.rows, matches, by, visit.page_number, descending=descending
    )
    return visit.page(
        "accounts.html",
        status,
        page=page,
        statistics=statistics,
        filters=filters,
        given=given,
        sort=sort,
        states=list(_STATES),
        banned=banned,
        last_used=used,
        operations=operations,
        names=sorted({*(operations.value or ()), *DEPRECATED, filters["using"]} - {""}),
        filtered=bool(given.keys() - {"sort"}),
        new_form=new_form
        or await visit.kept("/accounts")
        or Form([("plan", str(Plan.FREE)), ("orders", str(VisibleOrders.ALL))]),
    )


async def create(visit: Visit) -> Response:
    form = await visit.form()
    name, chosen, (contact, note) = form.read("name", rules.check_account_name), _read_plan(form), _read_details(form)
    orders = form.read("orders", partial(one_of, VisibleOrders))
    if name is None or chosen is None or orders is None or form.errors:
        return await list_accounts(visit, form, 400)
    try:
        await visit.store.accounts.create(name, *chosen, visit.actor, contact=contact, note=note, orders=orders)
    except AccountExists as error:
        form.errors["name"] = str(error)
        return await list_accounts(visit, form, 409)
    done = f"Created the account {name} on the plan {chosen[0]}; it sees {SEEN_ORDERS[orders]}."
    return visit.redirect_with_notice(account_path(name), done)


def _filters(visit: Visit) -> Form:
    """The filters and the sort key in the address; those that the page does not have are left out."""
    filters = visit.filters("search", "plan", "state", "using", "sort")
    sorts = [prefix + by for by in AccountSort for prefix in ("", "-")]
    for name, known in (("plan", [*Plan]), ("state", _STATES), ("sort", sorts)):
        if filters[name] not in known:
            filters.values[name] = ""
    return filters


def _matching(filters: Form, banned: frozenset[int], used: Collection[int] | None) -> Callable[[Account], bool]:
    """Whether an account has a part of its name in any case, a plan, and a state, and `used` what was asked for."""
    search, plan, state = filters["search"].casefold(), filters["plan"], filters["state"]

    def matches(account: Account) -> bool:
        is_in_state = account.id in banned if state == "banned" else state in ("", account.state)
        uses = used is None or account.id in used
        return is_in_state and uses and search in account.name.casefold() and plan in ("", account.plan)

    return matches


def _read_plan(form: Form) -> tuple[Plan, Limits] | None:
    """The plan and its limits; None if one is wrong, which the form then says."""
    plan = form.read("plan", partial(one_of, Plan))
    minute, day = form.read("per_minute", whole_number), form.read("per_day", whole_number)
    if plan is None or form.errors.keys() & {"per_minute", "per_day"}:
        return None
    try:
        return plan, rules.plan_limits(plan, minute, day)
    except InvalidInput as error:
        # The first limit that is given, to a plan that takes none; or else the one that is missing.
        at_day = minute is None if plan in rules.PLAN_LIMITS else minute is not None and day is None
        form.errors["per_day" if at_day else "per_minute"] = str(error)
        return None


def _read_details(form: Form) -> tuple[str, str]:
    """The contact and the note; empty where one is wrong, which the form then says."""
    return form.read("contact", partial(check_note, name="contact")) or "", form.read("note", check_note) or ""


async def show(visit: Visit, status: int = 200, **submitted: Form) -> Response:
    """An account. Forms such as `plan_form` may be given as they were submitted; a closed account has none."""
    account = await _account(visit)
    if submitted:
        rules.require_open(account)
    chosen = visit.parameter("keys")
    usable = {"usable": True, "ended": False}.get(chosen)
    keys, bans, usage, hours, days, changes = await asyncio.gather(
        visit.require(visit.store.keys.page(account.id, visit.now, KEYS_PAGE, visit.page_number, usable=usable)),
        visit.read(visit.store.keys.banned(visit.now, _BANS, name=account.name)),
        visit.read(visit.sources.usage_of(account.id)),
        visit.read(_bars(visit, account, Granularity.HOUR, _HOURS)),
        visit.read(_bars(visit, account, Granularity.DAY, _DAYS)),
        visit.read(_last_changes(visit, account)),
    )
    return visit.page(
        "account.html",
        status,
        account=account,
        usage=usage,
        windows=report_windows(account, usage.value, visit.now) if usage.value is not None else [],
        hours=hours,
        days=days,
        use=await visit.read(_use(visit, account)),
        page=keys,
        bans=bans,
        chosen_keys=chosen,
        scopes=[str(scope) for scope in Scope],
        webhooks=await visit.read(_webhooks(visit, account)),
        statuses=[str(status) for status in Status],
        changes=changes,
        **await _forms(visit, account, submitted),
    )


async def _forms(visit: Visit, account: Account, submitted: dict[str, Form]) -> dict[str, Form]:
    """The forms of the page of an account: as they were submitted, or with what was typed before, if that was kept.

    A page without a form, such as that of a closed account, leaves what was kept for it.
    """
    base, forms = account_path(account.name), submitted.copy()
    for name, path, form in (
        ("key_form", "keys", Form(("scope", scope) for scope in DEFAULT_SCOPES)),
        ("webhook_form", "webhooks", Form()),
        ("plan_form", "plan", _plan_form(account)),
        ("orders_form", "orders", Form([("orders", str(account.orders))])),
        ("details_form", "details", Form([("contact", account.contact), ("note", account.note)])),
    ):
        is_shown = account.closed_at is None and (path != "webhooks" or visit.sources.settings.webhook_secret)
        if name not in forms:
            forms[name] = (await visit.kept(f"{base}/{path}") if is_shown else None) or form
    return forms


async def _webhooks(visit: Visit, account: Account) -> list[tuple[Webhook, int]]:
    """The webhooks of the account, each with its lag in seconds."""
    found = await visit.store.webhooks.of_account(account.id)
    return [(webhook, await visit.sources.webhooks.lag(webhook, visit.now)) for webhook in found]


async def _last_changes(visit: Visit, account: Account) -> AuditPage:
    filters = AuditFilters(subjects=await account_subjects(visit.store, account.name))
    return await visit.store.audit.page(filters, _CHANGES)


async def change_plan(visit: Visit) -> Response:
    form = await visit.form()
    chosen = _read_plan(form)
    if chosen is None:
        return await show(visit, plan_form=form, status=400)
    plan, limits = chosen
    shown = f"{plural(limits.per_minute, 'request')} per minute and {limits.per_day:,} per day"
    done = f"{{}} is on the plan {plan} now: {shown}."
    try:
        return await _change(visit, form, rules.set_plan(plan, limits), done, _PLAN_FIELDS)
    except ChangedMeanwhile:
        account = await _account(visit)
        form.continue_from(version(account), {}, ())
        form.errors["plan"] = changed_meanwhile("plan", account.plan)
        return await show(visit, plan_form=form, status=409)


async def change_orders(visit: Visit) -> Response:
    """Change which orders the account sees."""
    form = await visit.form()
    orders = form.read("orders", partial(one_of, VisibleOrders))
    if orders is None:
        return await show(visit, orders_form=form, status=400)
    done = f"{{}} sees {SEEN_ORDERS[orders]} now."
    try:
        return await _change(visit, form, rules.edit(None, None, orders), done, ("orders",))
    except ChangedMeanwhile:
        account = await _account(visit)
        form.continue_from(version(account), {}, ())
        form.errors["orders"] = changed_meanwhile("choice", account.orders)
        return await show(visit, orders_form=form, status=409)


async def edit(visit: Visit) -> Response:
    """Change the contact and the note, unless the same was changed meanwhile. What was not typed again stays."""
    form = await visit.form()
    contact, note = _read_details(form)
    if form.errors:
        return await show(visit, details_form=form, status=400)
    mine = changed_since(form["seen"], {"contact": contact, "note": note})
    change = rules.edit(contact if "contact" in mine else None, note if "note" in mine else None)
    try:
        return await _change(visit, form, change, "Saved the contact and the note of {}.", mine)
    except ChangedMeanwhile:
        account = await _account(visit)
        now, names = account.fields(), fields_changed_since(form["seen"], account) & mine
        form.errors |= {name: changed_meanwhile(name, now[name]) for name in names}
        form.continue_from(version(account), {"contact": account.contact, "note": account.note}, mine)
        return await show(visit, details_form=form, status=409)


async def ask(question: str, visit: Visit) -> Response:
    """Ask before an account is suspended or closed: `question` is the template."""
    return visit.page(question, account=await _account(visit))


async def suspend(visit: Visit) -> Response:
    name, form = visit.path["name"], await visit.form()
    change = unless_changed(rules.suspend(visit.now), form["seen"], _STATE_FIELDS)
    account = await visit.store.accounts.change(name, change, visit.actor)
    if account.suspended_at != visit.now:
        return _already(visit, account)
    done = f"Suspended {name}: its keys do not work until you resume it."
    return visit.redirect_with_notice(account_path(name), done)


async def resume(visit: Visit) -> Response:
    done = "Resumed {}: its keys work again."
    return await _change(visit, await visit.form(), rules.RESUME, done, _STATE_FIELDS)


async def close(visit: Visit) -> Response:
    await visit.form()
    account, revoked = await visit.store.accounts.close_account(visit.path["name"], visit.actor)
    if account.closed_at != visit.now and not revoked:
        return _already(visit, account)
    done = f"Closed {account.name}, and revoked {plural(revoked, 'key')}."
    return visit.redirect_with_notice(account_path(account.name), done)


def _already(visit: Visit, account: Account) -> Response:
    """Say that the account was suspended or closed before."""
    line = f"Nothing was changed: {account.name} was {account.state} already."
    return visit.redirect_with_notice(account_path(account.name), line, kind="warn")


async def _change(
    visit: Visit, form: Form, transition: Transition[Account], done: str, fields: Collection[str]
) -> Response:
    """Change the account, unless one of these fields was changed since its page was shown; `done` says what.

    `{}` stands for its name. Raises ChangedMeanwhile.
    """
    name = visit.path["name"]
    await visit.store.accounts.change(name, unless_changed(transition, form["seen"], fields), visit.actor)
    return visit.redirect_with_notice(account_path(name), done.format(name))


async def _account(visit: Visit) -> Account:
    return await visit.require(visit.store.accounts.find(visit.path["name"]))


async def _bars(visit: Visit, account: Account, by: Granularity, count: int) -> list[tuple[str, tuple[int, ...]]]:
    """The label of each of the last hours or days, and the requests admitted and refused in it, by reason."""
    first, end = by.start(visit.now) - (count - 1) * by.seconds, int(visit.now) + 1
    history = await visit.store.usage.counts(account.id, first, end, by)
    counted = [(start, history.get(start, UsageCounts())) for start in range(first, end, by.seconds)]
    length = 10 if by is Granularity.DAY else None  # a date has 10 characters
    return [(minutes(start)[:length], counts[:4]) for start, counts in counted]


async def _use(visit: Visit, account: Account) -> list[tuple[str, int | None, UsageCounts]]:
    """What the account uses of the API: the hour in which it last did, None if that was not recorded, and its requests.

    The page chooses the period of the requests.
    """
    now, today = visit.now, Granularity.DAY.start(visit.now)
    periods = {"yesterday": (today - DAY, today), "month": (today - 29 * DAY, now + 1)}
    start, end = periods.get(visit.parameter("period"), (now - DAY, now + 1))
    counted = await visit.store.usage.operations(account.id, Granularity.HOUR.start(start), int(end))
    used = await visit.store.usage.last_used(account.id)
    return [(name, used.get(name), counted.get(name, UsageCounts())) for name in sorted(used.keys() | counted.keys())]


def _plan_form(account: Account) -> Form:
    fields = [("plan", str(account.plan))]
    if account.plan not in rules.PLAN_LIMITS:
        fields += [("per_minute", f"{account.limits.per_minute:,}"), ("per_day", f"{account.limits.per_day:,}")]
    return Form(fields)
