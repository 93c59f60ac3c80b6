"""Checks of what the store holds for partners: accounts, keys and bans."""

from collections.abc import AsyncIterator, Iterator

from petstore_server.domain.timestamps import format_unix
from petstore_server.operations.health.results import CheckResult
from petstore_server.operations.keys import KeyReport, list_keys
from petstore_server.ports import Store

_SOON = 7 * 86_400  # seconds


async def check_partners(store: Store, now: float) -> AsyncIterator[CheckResult]:
    """Whether partners have keys that work at `now` (Unix seconds), will expire soon, or are banned."""
    accounts, reports = await store.accounts.list(), await list_keys(store)
    working = [report for report in reports if report.works(now)]
    suspended = sum(account.suspended_at is not None for account in accounts)
    if not accounts:
        remedy = "petstore accounts create NAME --plan free"
        yield CheckResult("accounts", "warn", "There are no accounts yet.", remedy)
    elif not working:
        remedy = "petstore keys create ACCOUNT"
        yield CheckResult("keys", "warn", "No account has a key that works.", remedy)
    else:
        message = (
            f"{_plural(len(accounts), 'account')} ({suspended} suspended); {_plural(len(working), 'working key')}."
        )
        yield CheckResult("accounts", "ok", message)
    rotated = {report.key.rotated_from for report in reports}
    for report in working:
        for result in _key(report, now, rotated=report.key.id in rotated):
            yield result


def _key(report: KeyReport, now: float, *, rotated: bool) -> Iterator[CheckResult]:
    key = report.key
    if key.expires_at is not None and key.expires_at < now + _SOON and not rotated:
        message = f"Key {key.id} of {key.account} expires at {format_unix(key.expires_at)}."
        yield CheckResult("keys", "warn", message, f"petstore keys rotate {key.id} --expires 90d")
    if key.ban is not None and report.is_banned(now):
        message = f"Key {key.id} of {key.account} is banned until {format_unix(key.ban.until)}."
        remedy = f"Ask {key.account} to wait as Retry-After says; to lift the ban: petstore keys unban {key.id}"
        yield CheckResult("bans", "warn", message, remedy)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
