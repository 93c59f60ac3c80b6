"""The first page: whether all is well, and who uses and changes what; and the search box of every page."""

import asyncio
from functools import reduce
from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from petstore_server.console.forms import account_path, query_link
from petstore_server.console.recent_requests import INTERVALS, PERCENTILES, SAMPLE_SECONDS, RecentReport
from petstore_server.console.rendering import WITHOUT_CHANGES, minutes
from petstore_server.console.sources import Reading, RequestHistory
from petstore_server.console.visit import Visit
from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.errors import NotFound
from petstore_server.domain.keys import holds_key
from petstore_server.domain.orders import is_int64
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Granularity, ResponseCounts, UsageCounts, add
from petstore_server.operations.accounts import find_key_by_secret
from petstore_server.operations.admin_port import CONSOLE_PATH
from petstore_server.operations.orders import ids_with_reference
from petstore_server.operations.usage import AccountSort, top_accounts

_TOP = 5
_RECENT = 12

Bars = list[tuple[str, tuple[int, ...]]]  # the label and the values of each bar


async def overview(visit: Visit) -> Response:
    """Health, requests of a period, orders by status, accounts, bans and recent changes."""
    sources, store = visit.sources, visit.store
    backup_at, (counts, accounts, bans, changes), requests = await asyncio.gather(
        visit.read(store.audit.last_backup()),
        asyncio.gather(
            sources.order_counts.get(),
            visit.read(sources.accounts()),
            visit.read(store.keys.banned(visit.now, _TOP)),
            visit.read(store.audit.page(AuditFilters(without=WITHOUT_CHANGES), _RECENT)),
        ),
        _requests(visit),
    )
    rows = accounts.value.rows if accounts.value is not None else []
    # On a thread, because there may be tens of thousands.
    busiest = await asyncio.to_thread(top_accounts, rows, AccountSort.DAY_SHARE, _TOP)
    refused = await asyncio.to_thread(top_accounts, rows, AccountSort.REFUSED, _TOP)
    return visit.page(
        "overview.html",
        **requests,
        counts=counts,
        bans=bans,
        busiest=busiest,
        refused=refused,
        accounts=accounts,
        backup_at=backup_at,
        changes=changes,
    )


async def _requests(visit: Visit) -> dict[str, Any]:
    """The values for the card of requests: `requests` is a reading."""
    days = {"day": 1, "week": 7}.get(visit.parameter("period"))
    if days is None:
        report = await visit.sources.recent.get()
        return {"requests": report, "chart": report.value and _recent_bars(report.value)}
    if not visit.sources.settings.usage_daily_retention_days:
        problem = "No history is kept, because PETSTORE_USAGE_DAILY_RETENTION_DAYS is 0."
        return {"requests": Reading[RequestHistory](problem=problem), "chart": None}
    history = await visit.sources.request_history[days].get()
    if history.value is None:
        return {"requests": history, "chart": None}
    usage, responses = history.value
    served = reduce(ResponseCounts.plus, responses.values(), ResponseCounts())
    return {
        "requests": history,
        "chart": _history_bars(history.value, visit.now, days),
        "counted": reduce(add, usage.rows.values(), UsageCounts()),
        "without_key": sum(map(sum, usage.keyless.values())),
        "failures": served.failed,
        "percentiles": {percent: served.percentile(percent) for percent in PERCENTILES},
        "measured": len(responses) > 0,
    }


def _recent_bars(report: RecentReport) -> Bars:
    """The last hour; nothing is known of the minutes before the process began."""
    first = report.intervals[0].start
    missing = [first - SAMPLE_SECONDS * number for number in range(INTERVALS - len(report.intervals), 0, -1)]
    return [(minutes(start), ()) for start in missing] + [
        (minutes(interval.start), (interval.answered, interval.refused, interval.wrong, interval.failed))
        for interval in report.intervals
    ]


def _history_bars(history: RequestHistory, now: float, days: int) -> Bars:
    """Each request once: what failed is not among what was admitted; requests fail without being admitted, too."""
    (rows, keyless), responses = history
    hours = range(Granularity.HOUR.start(now - days * DAY), int(now) + 1, Granularity.HOUR.seconds)
    bars: Bars = []
    for hour in hours:
        counts, failed = rows.get(hour, UsageCounts()), responses[hour].failed if hour in responses else 0
        without_key = sum(keyless.get(hour, ()))
        bars.append((minutes(hour), (max(0, counts.admitted - counts.failed), counts.refused, without_key, failed)))
    return bars


async def search(visit: Visit) -> Response:
    """Go to the order, key, webhook, import, account or request with this id, reference or name; else list accounts.

    The form is submitted, because the text may be a whole API key, which must be in no address and in no log.
    """
    text = (await visit.form(once=False))["q"]
    return RedirectResponse(CONSOLE_PATH + await _found(visit, text), 303)


async def check_again(visit: Visit) -> Response:
    """Check the service again, and show the page from which that was asked for."""
    await visit.form(once=False)
    await visit.sources.monitor.look(again=True)
    return RedirectResponse(CONSOLE_PATH + visit.here, 303)


async def _found(visit: Visit, text: str) -> str:
    if holds_key(text):
        return f"/keys/{(await visit.require(find_key_by_secret(visit.store, text))).id}"
    if is_int64(text):
        orders = await visit.require(visit.store.orders.find_many([int(text)]))
        if orders:
            return f"/orders/{text}"
    try:
        return await _named(visit, text)
    except NotFound:
        for prefix, pages in (("key_", "keys"), ("wh_", "webhooks"), ("import-", "imports")):
            if text.startswith(prefix):
                return f"/{pages}/{quote(text, safe='')}"
        raise


async def _named(visit: Visit, text: str) -> str:
    """The path for the name of an account, the reference of an order, or the identifier of a request."""
    try:
        return account_path((await visit.require(visit.store.accounts.find(text))).name)
    except NotFound:
        if path := await _order_path(visit, text):
            return path
        page = await visit.require(visit.store.audit.page(AuditFilters(request_id=text), 1))
        if page.entries:
            return "/audit" + query_link({"request": text})
        rows = (await visit.require(visit.sources.accounts())).rows
        if not any(text.casefold() in row.account.name.casefold() for row in rows):  # it may be a part of a key
            raise NotFound("No order, key, webhook, import, account or request has this id or name.") from None
        return "/accounts" + query_link({"search": text})


async def _order_path(visit: Visit, text: str) -> str | None:
    """The path of the order with this reference, or of the list of those with it; else of the one with this id."""
    ids = await visit.require(ids_with_reference(visit.store, text))
    if len(ids) > 1:
        return "/orders" + query_link({"reference": text})
    if ids:
        return f"/orders/{ids[0]}"
    return f"/orders/{text}" if is_int64(text) else None
