"""The first page: whether all is well, and who uses and changes what."""

import asyncio
from collections.abc import Sequence
from functools import reduce
from typing import Any

from starlette.responses import Response

from petstore_server.console.changes import SIGN_INS
from petstore_server.console.charts import Bar, Chart, Series, chart
from petstore_server.console.readings import Cached, Reading
from petstore_server.console.rendering import minutes
from petstore_server.console.statistics import History
from petstore_server.console.visit import Entry, Visit
from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Granularity, KeylessCounts, UsageCounts, add
from petstore_server.operations.usage import AccountSort, AccountUsage, top_accounts
from petstore_server.telemetry.recent import INTERVALS, REFUSED_STATUSES, SAMPLE_SECONDS, Report

_TOP = 5
_RECENT = 12
_OUTCOMES = (
    Series("Answered", "answered"),
    Series(f"Refused ({', '.join(map(str, REFUSED_STATUSES))})", "refused"),
    Series("Other client errors", "wrong"),
    Series("Failed (5xx)", "failed"),
)
_COUNTED = (
    Series("Admitted", "answered"),
    Series("Refused by a limit or a ban", "refused"),
    Series("Without a valid key", "wrong"),
)
_PERIODS = (("hour", "Last hour"), ("day", "Last day"), ("week", "Last week"))


_BUTTONS = {
    "create account": ("Create account", "/accounts#create"),
    "create key": ("Create key", "/accounts"),
    "rotate key": ("Rotate", "/keys/{}"),
    "lift ban": ("Lift ban", "/bans"),
}
"""The button for what a check advises, and its page; `{}` is the identifier. The rest is done on the server only."""


async def overview(visit: Visit) -> Response:
    """Health, requests of a period, orders by status, accounts, bans and recent changes."""
    sources, store = visit.sources, visit.store
    period = visit.query.get("period", "hour")
    (health, backup_at, checks), (counts, accounts, bans, changes), requests = await asyncio.gather(
        asyncio.gather(visit.read(sources.service.readiness()), visit.read(store.backups.last()), sources.checks.get()),
        asyncio.gather(
            sources.statistics.order_counts.get(),
            visit.read(sources.statistics.accounts()),
            visit.read(store.keys.banned(visit.now, _TOP)),
            visit.read(store.audit.page(AuditFilters(without=SIGN_INS), _RECENT)),
        ),
        _requests(visit, period),
    )
    rows = accounts.value.rows if accounts.value is not None else []
    busiest, refused = await asyncio.to_thread(_top_accounts, rows)
    return visit.page(
        "overview.html",
        health=health,
        problems=[each for each in checks.value or () if each.level != "ok"],
        checks=checks,
        buttons=_BUTTONS,
        period=period,
        periods=_PERIODS,
        **requests,
        counts=counts,
        bans=bans,
        busiest=busiest,
        refused=refused,
        accounts=accounts,
        backup_at=backup_at,
        changes=changes,
    )


def _top_accounts(rows: Sequence[AccountUsage]) -> tuple[list[AccountUsage], list[AccountUsage]]:
    return top_accounts(rows, AccountSort.SHARE, _TOP), top_accounts(rows, AccountSort.REFUSED, _TOP)


async def _requests(visit: Visit, period: str) -> dict[str, Any]:
    """The values for the card of requests: `requests` is a reading, `since` the time (Unix seconds) of the first."""
    days = {"day": 1, "week": 7}.get(period)
    if days is None:
        report = await visit.read(visit.sources.requests.report())
        since = report.value.intervals[0].start if report.value is not None else None
        return {"requests": report, "chart": report.value and _recent_chart(report.value), "since": since}
    if not visit.sources.settings.usage_days_days:
        problem = "No history is kept, because PETSTORE_USAGE_DAYS_DAYS is 0."
        return {"requests": Reading[History](problem=problem), "chart": None, "since": None}
    kept: Cached[History] = visit.sources.statistics.day if days == 1 else visit.sources.statistics.week
    history = await kept.get()
    return {
        "requests": history,
        "chart": history.value and _history_chart(history.value, visit.now, days),
        "since": None,
        "counted": history.value and _sums(history.value),
    }


def _recent_chart(report: Report) -> Chart:
    """The last hour; nothing is known of the minutes before the process began."""
    first = report.intervals[0].start
    missing = [first - SAMPLE_SECONDS * number for number in range(INTERVALS - len(report.intervals), 0, -1)]
    bars = [Bar(minutes(start), ()) for start in missing]
    bars += [
        Bar(minutes(each.start), (each.answered, each.refused, each.wrong, each.failed)) for each in report.intervals
    ]
    return chart("Requests per minute in the last hour", _OUTCOMES, bars)


def _history_chart(history: History, now: float, days: int) -> Chart:
    counted = {row.start: (row.admitted, row.refused) for row in history.rows}
    keyless = {row.start: sum(row.counts) for row in history.keyless}
    hours = range(Granularity.HOUR.start(now - days * DAY), int(now) + 1, Granularity.HOUR.seconds)
    bars = [Bar(minutes(hour), (*counted.get(hour, (0, 0)), keyless.get(hour, 0))) for hour in hours]
    return chart(f"Requests per hour in the last {'24 hours' if days == 1 else '7 days'}", _COUNTED, bars)


def _sums(history: History) -> dict[str, int]:
    counts = reduce(add, (row.counts for row in history.rows), UsageCounts())
    keyless = reduce(add, (each.counts for each in history.keyless), KeylessCounts())
    return {
        "Admitted": counts.admitted,
        "Refused by the minute": counts.refused_minute,
        "Refused by the day": counts.refused_day,
        "Refused while banned": counts.refused_banned,
        "Without a valid key": sum(keyless),
        "Cancelled orders": counts.cancelled,
    }


ENTRIES = (Entry("/", overview),)
