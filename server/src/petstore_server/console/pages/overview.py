"""The first page: whether all is well, and who uses and changes what."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.responses import Response

from petstore_server.console.changes import change_of
from petstore_server.console.charts import Bar, Chart, Series, chart
from petstore_server.console.entry import Entry
from petstore_server.console.visit import Visit
from petstore_server.domain.audit import AuditFilters
from petstore_server.operations.account_lists import (
    AccountUsage,
    busiest_accounts,
    current_bans,
    most_refused_accounts,
)
from petstore_server.telemetry.recent import INTERVALS, REFUSED_STATUSES, SAMPLE_SECONDS, Report

_TOP = 5
_RECENT = 12
_OUTCOMES = (
    Series("Answered", "answered"),
    Series(f"Refused ({', '.join(map(str, REFUSED_STATUSES))})", "refused"),
    Series("Other client errors", "wrong"),
    Series("Failed (5xx)", "failed"),
)


async def overview(visit: Visit) -> Response:
    """Health, requests of the last hour, orders by status, accounts, bans and recent changes."""
    services, store = visit.services, visit.store
    health, report, counts, bans = await asyncio.gather(
        services.readiness(),
        services.requests.report(),
        services.statistics.status_counts(),
        current_bans(store, visit.now),
    )
    (rows, usage_known), backup_at, changes = await asyncio.gather(
        services.statistics.accounts(), store.backups.last(), store.audit.page(AuditFilters(), _RECENT)
    )
    busiest, refused = await asyncio.to_thread(_top_accounts, rows)
    ready, detail = health
    return visit.page(
        "overview.html",
        ready=ready,
        detail=detail,
        checks=services.checks.latest(),
        checks_age=services.checks.age,
        report=report,
        chart=_requests_chart(report),
        counts=counts,
        bans=bans,
        strikes=services.settings.ban_strikes,
        busiest=busiest,
        refused=refused,
        usage_known=usage_known,
        backup_at=backup_at,
        changes=[change_of(entry) for entry in changes.entries],
    )


def _top_accounts(rows: Sequence[AccountUsage]) -> tuple[list[AccountUsage], list[AccountUsage]]:
    """Those closest to a limit, and those refused most."""
    return busiest_accounts(rows, _TOP), most_refused_accounts(rows, _TOP)


def _requests_chart(report: Report) -> Chart:
    """The last hour; minutes before the process began are empty."""
    first = report.intervals[0].start
    missing = [first - SAMPLE_SECONDS * number for number in range(INTERVALS - len(report.intervals), 0, -1)]
    bars = [Bar(_clock(start), (0, 0, 0, 0)) for start in missing]
    bars += [
        Bar(_clock(each.start), (each.answered, each.refused, each.wrong, each.failed)) for each in report.intervals
    ]
    return chart("Requests per minute in the last hour", _OUTCOMES, bars)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")


ENTRIES = (Entry("/", overview),)
