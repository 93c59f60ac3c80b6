"""`petstore accounts`: partners, their plans and their usage."""

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from petstore_server.cli.arguments import TEXT, Parsed
from petstore_server.cli.commands import ACCOUNT_NAME, YES, Noun, confirm, operator, settings_here, with_store
from petstore_server.cli.keys import ban_end, key_fields
from petstore_server.cli.output import comment, details, plural, show, table
from petstore_server.domain import accounts as transitions
from petstore_server.domain.accounts import PLAN_LIMITS, Account, Plan, VisibleOrders, check_account_name, plan_limits
from petstore_server.domain.errors import Unreachable
from petstore_server.domain.texts import check_note
from petstore_server.domain.timestamps import format_unix
from petstore_server.domain.transitions import Transition
from petstore_server.domain.usage import DEPRECATED
from petstore_server.operations import accounts as use_cases
from petstore_server.operations.audit import shown_fields
from petstore_server.runtime.usage import account_usage, counts_elsewhere
from petstore_server.store import Store

accounts = Noun("accounts", "$ petstore accounts create acme --plan pro")

PLAN = click.Choice(list(map(str, Plan)))
VISIBLE = click.Choice(list(map(str, VisibleOrders)))
NAME = click.Argument(["name"], type=ACCOUNT_NAME)
_COUNTED_IN_REDIS = "The usage is not known: servers count it in Redis. Set PETSTORE_REDIS_URL as for the server."
PER_MINUTE = click.option("--per-minute", type=int, metavar="N", help="Requests per minute; for enterprise only.")
PER_DAY = click.option("--per-day", type=int, metavar="N", help="Requests per day; for enterprise only.")


@accounts.command(writes=True, values=PLAN_LIMITS)
@click.argument("name", type=Parsed("name", check_account_name))
@click.option("--plan", type=PLAN, required=True, help="The plan, which sets the limits.")
@PER_MINUTE
@PER_DAY
@click.option("--orders", type=VISIBLE, help="The orders that it sees and may cancel: all (the default), or its own.")
@click.option("--contact", type=TEXT, default="", help="Whom to write to, such as an e-mail address.")
@click.option("--note", type=TEXT, default="", help="What operators should know about the account.")
def create(
    name: str, plan: str, per_minute: int | None, per_day: int | None, orders: str | None, contact: str, note: str
) -> None:
    """Create the account NAME.

    The limits of the plans: free {free.per_minute} requests per minute and {free.per_day} per day,
    pro {pro.per_minute} and {pro.per_day}, business {business.per_minute} and {business.per_day}.
    An enterprise account has its own limits.

    $ petstore accounts create acme --plan free --orders own --contact ops@acme.example
    $ petstore accounts create globex --plan enterprise --per-minute 5000 --per-day 2000000
    """
    limits = plan_limits(Plan(plan), per_minute, per_day)
    visible = VisibleOrders(orders or VisibleOrders.ALL)

    async def work(store: Store) -> Account:
        chosen = name, Plan(plan), limits, operator()
        return await store.accounts.create(
            *chosen, contact=check_note(contact, "contact"), note=check_note(note), orders=visible
        )

    _show(with_store(work))
    if orders is None:
        command = f"petstore accounts edit {shlex.quote(name)} --orders own"
        comment(f"{name} sees all orders and may cancel those of other accounts; `{command}` restricts it to its own.")


@accounts.command("list")
@click.option(
    "--using", type=TEXT, metavar="OPERATION", help="Only those that have used it: getPet, v2.placeOrder, v1.*"
)
def list_accounts(using: str | None) -> None:
    """List all accounts by name, or those that have used an operation of the API, with the hour in which they last did.

    `v1.*` is any operation of version 1.

    $ petstore accounts list
    $ petstore accounts list --using getPet
    """

    async def read(store: Store) -> tuple[Sequence[Account], Mapping[int, int], Iterable[str]]:
        uses = {} if using is None else await store.usage.used_by(using)
        found = [each for each in await store.accounts.list() if using is None or each.id in uses]
        return found, uses, () if found or using is None else await store.usage.users(0)

    found, uses, used = with_store(read)
    header: tuple[str, ...] = ("NAME", "PLAN", "PER MINUTE", "PER DAY", "ORDERS", "STATE", "CREATED")
    rows: list[tuple[object, ...]] = [
        (each.name, each.plan, *each.limits, each.orders, each.state, format_unix(each.created_at)) for each in found
    ]
    listed = [_fields(account) for account in found]
    if using is not None:
        last = [f"{format_unix(uses[account.id])}" for account in found]
        header, rows = (*header, "LAST USED"), [(*row, f"{at[:16]}Z") for row, at in zip(rows, last, strict=True)]
        listed = [fields | {"lastUsedAt": at} for fields, at in zip(listed, last, strict=True)]
    show(listed, lambda: table(header, rows))
    if using is not None and not found:
        comment(f"No account has used {using}. Operations that were used: {', '.join(used) or 'none'}.")


@accounts.command("show", params=[NAME])
def show_account(name: str) -> None:
    """Show one account: its limits, the usage of both windows, what it uses of the API, its keys and their bans.

    The usage is read from where servers count: from Redis if PETSTORE_REDIS_URL is set, else from the store, where it
    is at most a second old. What the account uses has the hour of its last request, admitted or refused; `v1.*` is any
    operation of version 1.

    $ petstore accounts show acme
    """
    now, settings = time.time(), settings_here()

    async def read(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
        account, problem, windows = await store.accounts.find(name), None, None
        try:
            if not counts_elsewhere(settings):
                usage = await account_usage(settings, store, account.id)
                windows = [window._asdict() for window in use_cases.report_windows(account, usage, now)]
        except Unreachable as error:  # the rest is needed most while Redis is down
            problem = error.explanation
        uses = [
            {"operation": used, "deprecated": used in DEPRECATED, "lastUsedAt": format_unix(hour)}
            for used, hour in (await store.usage.last_used(account.id)).items()
        ]
        keys = [key_fields(key, now) for key in await store.keys.list(name)]
        rest = {"windows": shown_fields(windows), "usageProblem": problem, "uses": uses, "keys": keys}
        return _fields(account), rest

    account, rest = with_store(read)
    show(account | rest, lambda: _page(account, rest))


@accounts.command(writes=True, params=[NAME])
@click.argument("plan", metavar="PLAN", type=PLAN)
@PER_MINUTE
@PER_DAY
def set_plan(name: str, plan: str, per_minute: int | None, per_day: int | None) -> None:
    """Change the plan of the account NAME to PLAN: free, pro, business or enterprise.

    Its usage is preserved; servers apply it within a second.

    $ petstore accounts set-plan acme business
    """
    _change(name, transitions.set_plan(Plan(plan), plan_limits(Plan(plan), per_minute, per_day)))


@accounts.command(writes=True, params=[NAME])
def suspend(name: str) -> None:
    """Make all keys of the account NAME invalid until it is resumed; servers apply it within a second.

    $ petstore accounts suspend acme
    """
    _change(name, transitions.suspend(time.time()))


@accounts.command(writes=True, params=[NAME])
def resume(name: str) -> None:
    """Make the keys of the suspended account NAME valid again; servers apply it within a second.

    $ petstore accounts resume acme
    """
    _change(name, transitions.RESUME)


@accounts.command(writes=True, params=[NAME])
@click.option("--contact", type=TEXT, help="Whom to write to; an empty text removes it.")
@click.option("--note", type=TEXT, help="What operators should know; an empty text removes it.")
@click.option("--orders", type=VISIBLE, help="The orders that it sees and may cancel: all, or its own.")
def edit(name: str, contact: str | None, note: str | None, orders: str | None) -> None:
    """Change the contact or the note of the account NAME, or which orders it sees and may cancel.

    Servers apply --orders within a second. With `own`, the orders of others, and those without an owner, do not exist
    for the account; `petstore orders list --account NAME` shows what it will see.

    $ petstore accounts edit acme --orders own
    $ petstore accounts edit acme --contact ops@acme.example --note "renews in March"
    """
    if contact is None and note is None and orders is None:
        raise click.UsageError("Give --contact, --note or --orders.", click.get_current_context())
    _change(name, transitions.edit(contact, note, VisibleOrders(orders) if orders else None))


@accounts.command(writes=True, params=[NAME])
@YES
def close(name: str, yes: bool) -> None:
    """End the account NAME for good, and revoke all its keys; servers apply it within a second.

    Asks first: neither can be reversed. The account stays in lists and in the audit log, and its name is not free
    again. To make keys invalid for a time, suspend the account instead.

    $ petstore accounts close acme
    """
    if not yes:
        confirm(f"Close the account {name} for good, and revoke all its keys?")
    account, revoked = with_store(lambda store: store.accounts.close_account(name, operator()))
    _show(account)
    comment(f"Revoked {plural(revoked, 'key')}.")


def _change(name: str, transition: Transition[Account]) -> None:
    _show(with_store(lambda store: store.accounts.change(name, transition, operator())))


def _show(account: Account) -> None:
    show(_fields(account), lambda: details(_fields(account).items()))


def _fields(account: Account) -> dict[str, Any]:
    named = {"name": account.name, "state": account.state, "created_at": account.created_at}
    return dict(shown_fields(named | account.fields()))


def _page(account: dict[str, Any], rest: dict[str, Any]) -> str:
    usage = rest["usageProblem"] or _COUNTED_IN_REDIS
    if rest["windows"] is not None:
        titles = ("WINDOW", "USED", "LIMIT", "REMAINING", "RESETS")
        usage = table(titles, [list(window.values()) for window in rest["windows"]])
    uses = "No use of the API is recorded."
    if rest["uses"]:
        found = map(dict.values, rest["uses"])
        used = [(name, f"{last[:16]}Z", "deprecated" if old else None) for name, old, last in found]
        uses = table(("OPERATION", "LAST USED", "STATE"), used)
    listed = f"No keys yet; create one with `petstore keys create {shlex.quote(account['name'])}`."
    if rest["keys"]:
        columns = ("KEY", "STATE", "EXPIRES", "BANNED UNTIL", "NOTE")
        rows = [(key["id"], key["state"], key["expiresAt"], ban_end(key), key["note"]) for key in rest["keys"]]
        listed = table(columns, rows, shrinks=["NOTE"])
    return f"{details(account.items())}\n\n{usage}\n\n{uses}\n\n{listed}"
