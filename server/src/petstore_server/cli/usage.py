"""`petstore usage`: the usage history, and the accounts that are most active, most refused, or near a limit."""

import time
from collections.abc import Sequence
from typing import Any

import click

from petstore_server.cli.arguments import ACCOUNT_NAME, PAST, WholeNumber
from petstore_server.cli.commands import Command, Group
from petstore_server.cli.output import Column, log_to_stderr, show, table, terminal_width
from petstore_server.cli.stores import installation, settings_here, with_store
from petstore_server.domain.timestamps import DAY, format_hour, format_unix
from petstore_server.domain.usage import Granularity, UsageCounts
from petstore_server.operations import usage as operations
from petstore_server.operations.account_lists import AccountSort, AccountUsage
from petstore_server.operations.usage import UsageReport
from petstore_server.store import Store

_BY_HOUR_SECONDS = 3 * DAY  # a longer period is shown by day unless asked for
_BAR = 30
_RANKINGS = [str(each) for each in (AccountSort.ADMITTED, AccountSort.REFUSED, AccountSort.SHARE)]


class _UsageGroup(Group):
    """A group whose command `show` runs if none is named: `petstore usage acme`."""

    default_command = "show"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_UsageGroup)
def usage() -> None:
    """The usage history: requests admitted and refused, and orders cancelled, by hour or day in UTC.

    Without a command, `show` runs.

    $ petstore usage
    $ petstore usage acme --since 7d
    $ petstore usage top --by refused
    """


SINCE = click.option(
    "--since",
    type=PAST,
    default="24h",
    metavar="WHEN",
    help="Start of the period: a duration such as 7d, a date or a time; 24h if not given.",
)


@usage.command("show", cls=Command)
@click.argument("account", type=ACCOUNT_NAME, required=False)
@SINCE
@click.option(
    "--by",
    type=click.Choice([str(each) for each in Granularity]),
    help="Group by hour or by day. Default: hour for periods of up to 3 days, day for longer ones.",
)
def show_usage(account: str | None, since: float, by: str | None) -> None:
    """Show the usage of ACCOUNT, or of all accounts together, by hour or day in UTC.

    Hours and days without requests are left out. Servers save their counts four times a second. Hours are kept for
    PETSTORE_USAGE_HOURS_DAYS, days for PETSTORE_USAGE_DAYS_DAYS.

    $ petstore usage acme
    $ petstore usage acme --since 30d --by day
    """
    _say_if_off()
    now = time.time()
    granularity = Granularity(by or ("hour" if now - since <= _BY_HOUR_SECONDS else "day"))
    report = with_store(lambda store: operations.report_usage(store, account, since, now, granularity))
    show(_report_fields(account, granularity, report), lambda: _report_page(granularity, report))


@usage.command(cls=Command)
@SINCE
@click.option(
    "--by",
    type=click.Choice(_RANKINGS),
    default=_RANKINGS[0],
    help="Order by requests admitted, by requests refused, or by the used share of the day's limit.",
)
@click.option(
    "--limit",
    type=WholeNumber(1, 10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of accounts to show.",
)
def top(since: float, by: str, limit: int) -> None:
    """Show the accounts that are most active, that are refused most, or that are closest to the day's limit.

    $ petstore usage top
    $ petstore usage top --since 7d --by refused
    $ petstore usage top --by share
    """
    _say_if_off()
    now, sort, here = time.time(), AccountSort(by), installation()

    async def find(store: Store) -> list[AccountUsage]:
        usages = None if here.counts_elsewhere() else await here.all_usage(store)
        return await operations.rank_accounts(store, usages, sort, since, now, limit)

    found = with_store(find)
    if sort is AccountSort.SHARE and here.counts_elsewhere():
        log_to_stderr("What accounts use is counted in Redis; set PETSTORE_REDIS_URL as for the server.")
    shares = [None if each.day is None else round(each.share, 4) for each in found]
    show([_top_fields(*each) for each in zip(found, shares, strict=True)], lambda: _top_page(found, shares))


def _say_if_off() -> None:
    if settings_here().usage_days_days == 0:
        log_to_stderr("Servers with these settings record no usage history: PETSTORE_USAGE_DAYS_DAYS is 0.")


def _report_fields(account: str | None, by: Granularity, report: UsageReport) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "account": account,
        "by": str(by),
        "history": [{"start": format_unix(row.start), **_count_fields(row.counts)} for row in report.rows],
    }
    if report.keyless is not None:
        fields["withoutKey"] = [
            {
                "start": format_unix(row.start),
                "refusedKey": row.counts.refused_key,
                "refusedAddress": row.counts.refused_address,
            }
            for row in report.keyless
        ]
    return fields


def _count_fields(counts: UsageCounts) -> dict[str, int]:
    return {
        "admitted": counts.admitted,
        "refused": counts.refused,
        "refusedMinute": counts.refused_minute,
        "refusedDay": counts.refused_day,
        "refusedBanned": counts.refused_banned,
        "cancelled": counts.cancelled,
    }


def _top_fields(entry: AccountUsage, share: float | None) -> dict[str, Any]:
    account = entry.account
    return {
        "account": account.name,
        "plan": str(account.plan),
        **_count_fields(entry.counts or UsageCounts()),
        "dayShare": share,
    }


_COUNTS = ("ADMITTED", "REFUSED", "BY MINUTE", "BY DAY", "BANNED", "CANCELLED")


def _report_page(by: Granularity, report: UsageReport) -> str:
    if not report.rows and not report.keyless:
        return "No requests in this period."
    keyless = {row.start: row.counts for row in report.keyless or ()}
    counted = {row.start: row.counts for row in report.rows}
    starts = sorted(counted.keys() | keyless.keys())
    header: list[str | Column] = [by.upper(), *_COUNTS]
    rows = [[_start(start, by), *_count_fields(counted.get(start, UsageCounts())).values()] for start in starts]
    if report.keyless is not None:
        header.append("WITHOUT KEY")
        for start, row in zip(starts, rows, strict=True):
            row.append(sum(keyless.get(start, ())))
    return _with_bars(table(header, rows), [counted.get(start, UsageCounts()) for start in starts])


def _top_page(found: Sequence[AccountUsage], shares: Sequence[float | None]) -> str:
    if not found:
        return "No accounts to show in this period."
    header = (Column("ACCOUNT", shrinks=True), "PLAN", *_COUNTS, "OF DAY LIMIT")
    rows = [
        (
            entry.account.name,
            entry.account.plan,
            *_count_fields(entry.counts or UsageCounts()).values(),
            None if share is None else f"{share:.1%}",
        )
        for entry, share in zip(found, shares, strict=True)
    ]
    return table(header, rows)


def _start(start: int, by: Granularity) -> str:
    return str(format_unix(start))[:10] if by is Granularity.DAY else str(format_hour(start))


def _with_bars(page: str, counts: Sequence[UsageCounts]) -> str:
    """The table with a bar for each row, admitted as full blocks and refused as light ones, if a terminal has room."""
    width, lines = terminal_width(), page.splitlines()
    longest = max(len(line) for line in lines)
    most = max(count.admitted + count.refused for count in counts)
    if width is None or len(lines) != len(counts) + 1 or not most or width < longest + 2 + _BAR:
        return page
    bars = [""]
    for count in counts:
        total = round((count.admitted + count.refused) * _BAR / most)
        admitted = min(total, round(count.admitted * _BAR / most))
        bars.append("█" * admitted + "░" * (total - admitted))
    return "\n".join(f"{line:<{longest}}  {bar}".rstrip() for line, bar in zip(lines, bars, strict=True))
