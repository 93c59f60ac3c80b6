"""`petstore accounts`: who may ask, and how often."""

import time
from typing import Any

import click

from petstore_server.cli.arguments import AccountName, limits_of
from petstore_server.cli.console import Group, details, show, table
from petstore_server.cli.keys import key_fields
from petstore_server.cli.stores import operator, settings_here, with_store
from petstore_server.domain.accounts import Account, Plan
from petstore_server.domain.keys import ApiKey
from petstore_server.domain.timestamps import format_unix
from petstore_server.domain.windows import DAY, MINUTE, Window, evaluate_account, roll_window
from petstore_server.ports import Store, Usage
from petstore_server.runtime import backend


@click.group(cls=Group)
def accounts() -> None:
    """The store's partners: their plans, and what they have used.

    \b
    Example:
      petstore accounts create acme --plan pro
    """


PLAN = click.Choice([str(plan) for plan in Plan])
PER_MINUTE = click.option("--per-minute", type=int, metavar="N", help="Requests a minute; for enterprise only.")
PER_DAY = click.option("--per-day", type=int, metavar="N", help="Requests a day; for enterprise only.")


@accounts.command()
@click.argument("name", type=AccountName())
@click.option("--plan", type=PLAN, required=True, help="Which limits apply.")
@PER_MINUTE
@PER_DAY
def create(name: str, plan: str, per_minute: int | None, per_day: int | None) -> None:
    """Create the account NAME.

    Free is 60 requests a minute and 1000 a day, pro 300 and 10000, business 1000 and 100000; enterprise needs
    numbers of its own.

    \b
    Examples:
      petstore accounts create acme --plan free
      petstore accounts create globex --plan enterprise --per-minute 5000 --per-day 2000000
    """
    limits = limits_of(Plan(plan), per_minute, per_day)
    _show(with_store(lambda store: store.accounts.create(name, Plan(plan), limits, operator()), writes=True))


@accounts.command("list")
def list_accounts() -> None:
    """List all accounts, by name.

    \b
    Example:
      petstore accounts list
    """
    found = with_store(lambda store: store.accounts.list())
    header = ("NAME", "PLAN", "PER MINUTE", "PER DAY", "STATE", "CREATED")
    show(
        [_fields(account) for account in found],
        lambda: table(
            header,
            [(each.name, each.plan, *each.limits, _state(each), format_unix(each.created_at)) for each in found],
        ),
    )


@accounts.command("show")
@click.argument("name")
def show_account(name: str) -> None:
    """Show one account: its limits, what each window has used, its keys and their bans.

    Usage comes from Redis, where it is counted there; else it is what the server last wrote down, at most a second
    old.

    \b
    Example:
      petstore accounts show acme
    """

    async def look(store: Store) -> tuple[Account, Usage, list[ApiKey]]:
        account = await store.accounts.find(name)
        usage = await backend.account_usage(settings_here(), store, account.id)
        return account, usage, await store.keys.list(name)

    account, usage, keys = with_store(look)
    now = time.time()
    windows = _windows(account, usage, now)
    key_list = [key_fields(key, now) for key in keys]
    show({**_fields(account), "windows": windows, "keys": key_list}, lambda: _page(account, windows, key_list))


@accounts.command()
@click.argument("name")
@click.argument("plan", type=PLAN)
@PER_MINUTE
@PER_DAY
def set_plan(name: str, plan: str, per_minute: int | None, per_day: int | None) -> None:
    """Move the account NAME to PLAN. What was used stays used; servers follow within a second.

    \b
    Example:
      petstore accounts set-plan acme business
    """
    limits = limits_of(Plan(plan), per_minute, per_day)
    _show(with_store(lambda store: store.accounts.set_plan(name, Plan(plan), limits, operator()), writes=True))


@accounts.command()
@click.argument("name")
def suspend(name: str) -> None:
    """Make all keys of the account NAME invalid until it is resumed; servers follow within a second.

    \b
    Example:
      petstore accounts suspend acme
    """
    _show(with_store(lambda store: store.accounts.suspend(name, operator()), writes=True))


@accounts.command()
@click.argument("name")
def resume(name: str) -> None:
    """Make the keys of a suspended account valid again.

    \b
    Example:
      petstore accounts resume acme
    """
    _show(with_store(lambda store: store.accounts.resume(name, operator()), writes=True))


def _show(account: Account) -> None:
    show(_fields(account), lambda: _summary(account))


def _state(account: Account) -> str:
    return "active" if account.suspended_at is None else "suspended"


def _summary(account: Account) -> str:
    return details(
        [
            ("account", account.name),
            ("plan", f"{account.plan} ({account.limits.per_minute} a minute, {account.limits.per_day} a day)"),
            ("state", _state(account)),
            ("created", format_unix(account.created_at)),
        ]
    )


def _fields(account: Account) -> dict[str, Any]:
    return {
        "name": account.name,
        "plan": str(account.plan),
        "perMinute": account.limits.per_minute,
        "perDay": account.limits.per_day,
        "state": _state(account),
        "createdAt": format_unix(account.created_at),
        "suspendedAt": format_unix(account.suspended_at),
    }


def _windows(account: Account, usage: Usage, now: float) -> list[dict[str, Any]]:
    """Both windows as they stand at `now`; one that nothing was charged to is not open and has no reset."""
    minute, day = roll_window(usage.minute, MINUTE, now), roll_window(usage.day, DAY, now)
    told = evaluate_account(True, minute, day, account.limits, now).windows
    return [_window(window, count.used) for window, count in zip(told, (minute, day), strict=True)]


def _window(window: Window, used: int) -> dict[str, Any]:
    return {
        "window": window.name,
        "used": used,
        "limit": window.limit,
        "remaining": window.remaining,
        "reset": format_unix(window.reset) if used else None,
    }


def _page(account: Account, windows: list[dict[str, Any]], keys: list[dict[str, Any]]) -> str:
    usage = table(("WINDOW", "USED", "LIMIT", "REMAINING", "RESETS"), [list(window.values()) for window in windows])
    if not keys:
        return f"{_summary(account)}\n\n{usage}\n\nNo keys yet; `petstore keys create` makes one."
    rows = [(key["id"], key["state"], key["expiresAt"], _ban_end(key), key["note"] or None) for key in keys]
    return f"{_summary(account)}\n\n{usage}\n\n{table(('KEY', 'STATE', 'EXPIRES', 'BANNED UNTIL', 'NOTE'), rows)}"


def _ban_end(key: dict[str, Any]) -> object:
    return key["ban"]["until"] if key["ban"] else None
