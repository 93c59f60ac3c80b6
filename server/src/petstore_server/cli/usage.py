"""`petstore usage`: the usage history, and the accounts that are most active, most refused, or near a limit."""

import time
from collections.abc import Collection, Sequence
from typing import Any

import click

from petstore_server.cli.arguments import PAST, WholeNumber, require_period
from petstore_server.cli.commands import ACCOUNT_NAME, Noun, settings_here, with_store
from petstore_server.cli.output import log_to_stderr, show, table, terminal_width
from petstore_server.domain.timestamps import DAY, format_unix
from petstore_server.domain.usage import Granularity, UsageCounts
from petstore_server.operations import usage as use_cases
from petstore_server.operations.usage import AccountSort, AccountUsage, UsageReport
from petstore_server.runtime.usage import all_usage, counts_elsewhere
from petstore_server.store import Store

_BY_HOUR_SECONDS = 3 * DAY  # a longer period is shown by day unless asked for
_BAR, _MIN_BAR = 30, 10  # characters
_REASONS = slice(3, 6)  # the columns that divide the refused requests, left out where a terminal has no room for bars
_RANKINGS = [
    str(each) for each in (AccountSort.ADMITTED, AccountSort.REFUSED, AccountSort.REQUESTS, AccountSort.DAY_SHARE)
]


_COUNTS = {"admitted": "ADMITTED", "refused": "REFUSED", "refusedMinute": "BY MINUTE", "refusedDay": "BY DAY"}
_COUNTS |= {"refusedBanned": "BANNED", "cancelled": "CANCELLED"}  # titles of columns, by the names in JSON
_RESPONSES = {"succeeded": "SUCCEEDED", "unchanged": "UNCHANGED", "forbidden": "FORBIDDEN", "notFound": "NOT FOUND"}
_RESPONSES |= {"conflict": "CONFLICT", "gone": "GONE", "invalid": "INVALID", "failed": "FAILED"}
_OPERATION, _NO_REQUESTS = "operation", "No requests in this period."


class _UsageGroup(Noun):
    """A group whose command `show` runs if none is named: `petstore usage acme`."""

    default_command = "show"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.default_command, *args])


usage = _UsageGroup(
    "usage",
    "Without a command, `show` runs, with its options: --since WHEN and --until WHEN for the period, and --by hour, "
    "--by day or --by operation.\n\n$ petstore usage acme\n$ petstore usage acme --since 30d --by day\n"
    "$ petstore usage acme --by operation\n$ petstore usage top",
)
_SINCE_HELP = "Start of the period: a duration such as 7d, a date or a time; 24h if not given."
SINCE = click.option("--since", type=PAST, default="24h", help=_SINCE_HELP)
_BY_HELP = "Group by hour, day or operation. Default: hour for periods of up to 3 days, day for longer ones."
_LIMIT_HELP = "Number of accounts to show."
_RANKING_HELP = "Order by requests admitted, refused, or both (requests), or by the used share of the day's limit."


@usage.command("show")
@click.argument("account", type=ACCOUNT_NAME, required=False)
@SINCE
@click.option("--until", type=PAST, help="End of the period, which is not included; now if not given.")
@click.option("--by", type=click.Choice([*map(str, Granularity), _OPERATION]), help=_BY_HELP)
def show_usage(account: str | None, since: float, until: float | None, by: str | None) -> None:
    """Show the usage of ACCOUNT, or of all accounts together, by hour or day in UTC, or by operation.

    By operation, the responses to admitted requests are shown by class: SUCCEEDED is 2xx, but cancelled orders have
    their own column, UNCHANGED 304, INVALID every 4xx that has no column, FAILED 5xx. `none` has the requests whose
    path or method is not served.

    Hours and days count as a whole. Those without requests are left out, and on a narrow terminal the reasons of
    refusals. Servers save their counts four times a second. Hours are kept for PETSTORE_USAGE_HOURLY_RETENTION_DAYS,
    days for PETSTORE_USAGE_DAILY_RETENTION_DAYS.

    $ petstore usage acme
    $ petstore usage acme --since 30d --by day
    $ petstore usage acme --by operation --since 2026-11-20 --until 2026-11-21
    """
    _say_if_off()
    end = time.time() + 1 if until is None else until
    require_period(since, end)
    if by == _OPERATION:
        found = with_store(lambda store: use_cases.report_operations(store, account, since, end))
        listed = [{"operation": name, **_count_fields(found[name], _COUNTS | _RESPONSES)} for name in sorted(found)]
        rows = [(name, *(count or None for count in counts)) for name, *counts in map(dict.values, listed)]
        page = table(["OPERATION", *_COUNTS.values(), *_RESPONSES.values()], rows) if rows else _NO_REQUESTS
        show({"account": account, "by": by, "operations": listed}, lambda: page)
        return
    granularity = Granularity(by or ("hour" if end - since <= _BY_HOUR_SECONDS + 1 else "day"))
    report = with_store(lambda store: use_cases.report_usage(store, account, since, end, granularity))
    fields = _report_fields(account, granularity, report)
    show(fields, lambda: _report_page(fields))


@usage.command()
@SINCE
@click.option("--by", type=click.Choice(_RANKINGS), default=_RANKINGS[0], help=_RANKING_HELP)
@click.option("--limit", type=WholeNumber(1, 10_000), default=20, show_default=True, metavar="N", help=_LIMIT_HELP)
def top(since: float, by: str, limit: int) -> None:
    """Show the accounts that are most active, that are refused most, or that are closest to the day's limit.

    $ petstore usage top
    $ petstore usage top --since 7d --by requests
    $ petstore usage top --by share
    """
    _say_if_off()
    now, sort, settings = time.time(), AccountSort(by), settings_here()

    async def find(store: Store) -> list[AccountUsage]:
        usages = None if counts_elsewhere(settings) else await all_usage(settings, store)
        totals = await store.usage.totals(Granularity.HOUR.start(since), int(now) + 1)
        rows = use_cases.with_usage(await store.accounts.list(), usages, totals, now)
        return use_cases.top_accounts(rows, sort, limit)

    found = with_store(find)
    if sort is AccountSort.DAY_SHARE and counts_elsewhere(settings):
        log_to_stderr("What accounts use is counted in Redis; set PETSTORE_REDIS_URL as for the server.")
    fields: list[dict[str, Any]] = []
    for entry in found:
        named = {"account": entry.account.name, "plan": str(entry.account.plan)}
        day_share = None if entry.day is None else round(entry.day_share, 4)
        fields.append(named | _count_fields(entry.counts or UsageCounts()) | {"dayShare": day_share})
    show(fields, lambda: _top_page(fields))


def _say_if_off() -> None:
    if settings_here().usage_daily_retention_days == 0:
        log_to_stderr("Servers with these settings record no usage history: PETSTORE_USAGE_DAILY_RETENTION_DAYS is 0.")


def _report_fields(account: str | None, by: Granularity, report: UsageReport) -> dict[str, Any]:
    history = [{"start": format_unix(start), **_count_fields(counts)} for start, counts in report.rows.items()]
    fields: dict[str, Any] = {"account": account, "by": str(by), "history": history}
    if account is None:
        fields["withoutKey"] = [
            {"start": format_unix(start), "refusedKey": counts.refused_key, "refusedAddress": counts.refused_address}
            for start, counts in report.keyless.items()
        ]
    return fields


def _count_fields(counts: UsageCounts, names: Collection[str] = _COUNTS.keys()) -> dict[str, int]:
    return dict(zip(names, (counts.admitted, counts.refused, *counts[1 : len(names) - 1]), strict=True))


def _report_page(report: dict[str, Any]) -> str:
    counted = {start: counts for start, *counts in map(dict.values, report["history"])}
    keyless = {start: sum(counts) for start, *counts in map(dict.values, report.get("withoutKey", ()))}
    starts = sorted(counted.keys() | keyless.keys())
    if not starts:
        return _NO_REQUESTS
    shown, end = (len("2026-11-20"), "") if report["by"] == Granularity.DAY else (len("2026-11-20T09:30"), "Z")
    rows = [[start[:shown] + end, *counted.get(start, [0] * len(_COUNTS))] for start in starts]
    header = [report["by"].upper(), *_COUNTS.values()]
    if "withoutKey" in report:
        header.append("WITHOUT KEY")
        rows = [[*row, keyless.get(start, 0)] for start, row in zip(starts, rows, strict=True)]
    bars = [(row[1], row[2]) for row in rows]
    width, lines = terminal_width() or 0, [header, *rows]
    if width and width < _width(lines) + _MIN_BAR:
        for cells in lines:
            del cells[_REASONS]
    room, most = min(_BAR, width - _width(lines)), max(map(sum, bars))
    if room >= _MIN_BAR and most:
        header.append("")
        for row, (admitted, refused) in zip(rows, bars, strict=True):
            total = round((admitted + refused) * room / most)
            full = min(total, round(admitted * room / most))
            row.append("█" * full + "░" * (total - full) or " ")
    return table(header, rows)


def _width(lines: Sequence[Sequence[object]]) -> int:
    """The width of a table of these lines, and of the space after it."""
    return sum(2 + max(len(str(cell)) for cell in column) for column in zip(*lines, strict=True))


def _top_page(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return "No accounts to show in this period."
    header = ("ACCOUNT", "PLAN", *_COUNTS.values(), "OF DAY LIMIT")
    rows = [(*cells, None if share is None else f"{share:.1%}") for *cells, share in map(dict.values, found)]
    return table(header, rows, shrinks=["ACCOUNT"])
