"""The first page: whether all is well, and who uses and changes what."""

import asyncio
from datetime import UTC, datetime

from starlette.responses import Response

from petstore_server.console.changes import change_of
from petstore_server.console.charts import Bar, Chart, Series, chart
from petstore_server.console.entry import Entry
from petstore_server.console.visit import Visit
from petstore_server.operations.account_lists import busiest_accounts, current_bans
from petstore_server.ports import AuditFilters
from petstore_server.telemetry.recent import Report

_TOP = 5
_RECENT = 8
_OUTCOMES = (
    Series("Answered", "answered"),
    Series("Refused (401, 403, 429)", "refused"),
    Series("Other client errors", "wrong"),
    Series("Failed (5xx)", "failed"),
)


async def overview(visit: Visit) -> Response:
    """Health, requests of the last hour, orders by status, accounts, bans and recent changes."""
    services, store = visit.services, visit.store
    (ready, detail), report, counts, bans, busiest, changes = await asyncio.gather(
        services.readiness(),
        services.requests.report(),
        services.status_counts.get(),
        current_bans(store, visit.now),
        busiest_accounts(store, services.usages, visit.now, _TOP),
        store.audit.page(AuditFilters(), _RECENT),
    )
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
        busiest=busiest,
        changes=[change_of(entry) for entry in changes.entries],
    )


def _requests_chart(report: Report) -> Chart:
    bars = [
        Bar(
            datetime.fromtimestamp(each.start, UTC).strftime("%H:%M"),
            (each.answered, each.refused, each.wrong, each.failed),
        )
        for each in report.intervals
    ]
    return chart("Requests per minute in the last hour", _OUTCOMES, bars)


ENTRIES = (Entry("/", overview),)
