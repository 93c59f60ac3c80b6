"""Health checks of what the store holds, and of Redis and PostgreSQL: what is wrong, and what to do about it."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from petstore_server.domain.orders import MAX_ASSIGNED_ID
from petstore_server.domain.timestamps import DAY, format_unix
from petstore_server.store import Store

if TYPE_CHECKING:
    from petstore_server.store.webhooks import WebhookSummary

Level = Literal["ok", "warn", "fail"]
Action = Literal[
    "create account",
    "create key",
    "rotate key",
    "lift ban",
    "restrict orders",
    "back up",
    "record backup",
    "restore",
    "check store",
    "migrate",
    "list webhooks",
    "ping webhook",
    "resume webhook",
    "replace secrets",
]
_SOON = 7 * DAY  # seconds
_MOST_LARGE = 1000  # orders with large identifiers that are counted at most
_FEW_IDENTIFIERS = 1 << 32
_BACKUP_AGE = 2 * DAY  # seconds
_EARLIEST_NOW = 1_767_225_600  # 2026-01-01: this program is younger
_CLOCK_TOLERANCE = 10  # seconds
_KEEPING_POLICY = "noeviction"
_NEARLY_FULL = 0.8


class CheckResult(NamedTuple):
    """What one check found and what to do about it, without secrets. `action` is a command, for the thing `subject`."""

    check: str
    level: Level
    message: str
    remedy: str = ""
    action: Action | None = None
    subject: str = ""


async def check_partners(store: Store, now: float) -> AsyncIterator[CheckResult]:
    """Whether partners have keys that work at `now` (Unix seconds), expire soon, are banned, or see all orders."""
    found = await store.keys.summary(now, now + _SOON)
    if not found.accounts:
        remedy = "Create one for each partner."
        yield CheckResult("accounts", "warn", "There are no accounts yet.", remedy, "create account")
    elif not found.working:
        yield CheckResult("keys", "warn", "No account has a key that works.", "Create a key.", "create key")
    else:
        message = f"Accounts: {found.accounts:,} ({found.suspended:,} suspended); working keys: {found.working:,}."
        yield CheckResult("accounts", "ok", message)
    if found.open > 1 and found.cancel_all:
        message = f"Accounts that see all orders and may cancel them: {found.cancel_all:,} of {found.open:,}."
        remedy = "Restrict each account of a partner to its own orders."
        yield CheckResult("orders", "warn", message, remedy, "restrict orders", found.first or "")
    if found.expiring:
        key_id, account, at = found.expiring[0]
        first, number = f"{key_id} of {account} expires at {format_unix(at)}", len(found.expiring)
        message = f"Key {first}." if number == 1 else f"{number:,} keys expire within 7 days; {first}."
        yield CheckResult("keys", "warn", message, "Replace it by a new one.", "rotate key", key_id)
    banned = await store.keys.banned(now, 1)
    for key in banned.items:
        until = format_unix(key.ban.until if key.ban else None)
        message = f"Key {key.id} of {key.account} is banned until {until}."
        if banned.total > 1:
            message = f"{banned.total:,} keys are banned; {key.id} of {key.account} longest, until {until}."
        remedy = f"Ask {key.account} to wait as Retry-After says, or lift the ban."
        yield CheckResult("bans", "warn", message, remedy, "lift ban", key.id)


def check_clock(now: float, ahead: Mapping[str, float], last_change: float) -> CheckResult:
    """Whether `now` is plausible. `ahead` has the seconds by which other clocks are ahead; times are Unix seconds."""
    says = f"The clock says {format_unix(now)}"
    faults = [
        f"that of {name} is {abs(round(seconds)):,} seconds {'ahead' if seconds > 0 else 'behind'}"
        for name, seconds in ahead.items()
        if abs(seconds) > _CLOCK_TOLERANCE
    ]
    if last_change > now + _CLOCK_TOLERANCE:
        faults.append(f"the last change of the store was made at {format_unix(last_change)}")
    if now >= _EARLIEST_NOW and not faults:
        return CheckResult("clock", "ok", f"{says}.")
    remedy = "Set the clocks of all hosts and keep them right with NTP: keys, limits and bans depend on them."
    message = ", and ".join([says, *faults])
    return CheckResult("clock", "fail" if now < _EARLIEST_NOW else "warn", f"{message}.", remedy)


def check_backups(last: float | None, now: float, *, with_tools: bool) -> CheckResult:
    """Whether the last backup is recent at `now`, in Unix seconds. `with_tools`: PostgreSQL's make it."""
    message = f"The last backup was made at {format_unix(last)}." if last else "No backup of this store is known."
    if last is not None and abs(now - last) <= _BACKUP_AGE:  # not also one by a clock that was ahead
        return CheckResult("backup", "ok", message)
    if with_tools:
        remedy = "Make one every night with pg_dump or the like, and record it."
        return CheckResult("backup", "warn", message, remedy, "record backup")
    return CheckResult("backup", "warn", message, "Make one every night, by a timer.", "back up")


async def check_webhooks(store: Store, digest: str | None) -> list[CheckResult]:
    """Whether webhooks are delivered, if there are any. `digest` is that of the text that signs, None without one."""
    found = await store.webhooks.summary()
    if not found.number:
        return []
    results: list[CheckResult] = []

    def warn(message: str, remedy: str, action: Action) -> None:
        results.append(CheckResult("webhooks", "warn", message, remedy, action))

    if digest is None:
        message = f"Webhooks: {found.number:,}; nothing is delivered, because PETSTORE_WEBHOOK_SECRET is not set."
        warn(message, "Set it as it was, and restart the server; or delete the webhooks.", "list webhooks")
    elif not await store.webhooks.has_secret(digest):
        message = "PETSTORE_WEBHOOK_SECRET is not the one with which the webhooks were created: no server starts."
        remedy = "Set that one, or stop all servers and replace all secrets."
        results.append(CheckResult("webhooks", "fail", message, remedy, "replace secrets"))
    if found.attempted and found.delivered_at is None:
        remedy = "A firewall may forbid outgoing connections, or no receiver works yet."
        warn("No delivery of a webhook has ever succeeded.", remedy, "ping webhook")
    elif found.failing:
        message = f"Webhooks that fail: {found.failing:,}, the first since {format_unix(found.failing_since)}."
        warn(message, "Inform their partners; if all fail, a firewall may forbid connections.", "list webhooks")
    results += _interrupted_webhooks(found)
    last = f"; the last delivery succeeded at {format_unix(found.delivered_at)}" if found.delivered_at else ""
    return results or [CheckResult("webhooks", "ok", f"Webhooks: {found.number:,}{last}.")]


def _interrupted_webhooks(found: "WebhookSummary") -> Iterator[CheckResult]:
    """Webhooks that deliver nothing until they are resumed."""
    if found.stopped:
        message = f"Webhooks that were stopped after three days of failures: {found.stopped:,}."
        remedy = "Resume each when its receiver works again; it goes on where it was."
        yield CheckResult("webhooks", "warn", message, remedy, "resume webhook")
    if found.paused:
        message = f"Webhooks that are paused: {found.paused:,}; they deliver nothing until they are resumed."
        yield CheckResult("webhooks", "warn", message, "Resume each that should deliver.", "list webhooks")


async def check_identifiers(store: Store) -> AsyncIterator[CheckResult]:
    """Whether many identifiers are left for new orders, and whether programs in JavaScript can read all."""
    if large := await store.orders.count_above(MAX_ASSIGNED_ID, _MOST_LARGE):
        number = f"{large:,} or more" if large == _MOST_LARGE else f"{large:,}"
        message = f"Orders with identifiers above {MAX_ASSIGNED_ID}: {number}; JavaScript rounds them."
        yield CheckResult("large identifiers", "warn", message, "Tell partners, or import these orders under others.")
    last = await store.orders.last_identifier()
    left = max(0, MAX_ASSIGNED_ID - last)
    if left < _FEW_IDENTIFIERS:
        message = f"Order {last} leaves {left:,} identifiers for orders that are placed."
        remedy = "If it was imported by mistake, restore the backup from before the import."
        yield CheckResult("identifiers", "warn" if left else "fail", message, remedy)


def check_redis(info: Mapping[str, Any]) -> Iterator[CheckResult]:
    """What the fields of Redis's INFO, and its setting `appendfsync`, mean for limits (D12)."""
    concerns: list[tuple[str, str]] = []
    if not info.get("aof_enabled"):
        remedy = "Set `appendonly yes`; with `appendfsync everysec` a crash loses at most one second of counting."
        concerns.append(("Redis has no append-only file: a restart loses the counts of the day.", remedy))
    elif info.get("appendfsync") == "no":
        message = "Redis leaves it to the system when its append-only file is written: a crash can lose many counts."
        concerns.append((message, "Set `appendfsync everysec`."))
    policy = info.get("maxmemory_policy", _KEEPING_POLICY)
    if policy != _KEEPING_POLICY:
        message = f"Redis evicts keys when its memory is full ({policy}): accounts would get new quota."
        concerns.append((message, f"Set `maxmemory-policy {_KEEPING_POLICY}`, and give it enough memory."))
    used, room = info.get("used_memory", 0), info.get("maxmemory", 0)
    if room and used > _NEARLY_FULL * room:
        message = f"Redis uses {used >> 20} of its {room >> 20} MiB."
        concerns.append((message, "Raise `maxmemory`: a full Redis stops counting."))
    if info.get("role") == "slave":
        remedy = "Point PETSTORE_REDIS_URL to the primary."
        concerns.append(("This Redis is a replica and cannot count.", remedy))
    yield from (CheckResult("redis", "warn", *concern) for concern in concerns)
    if not concerns:
        version = info.get("valkey_version") or info.get("redis_version")
        message = f"Redis {version} counts limits, keeps the counts across a restart, and evicts none."
        yield CheckResult("redis", "ok", message)


def check_postgres(state: Mapping[str, str]) -> Iterator[CheckResult]:
    """How many connections are in use, and whether a change is durable when it is acknowledged (D5)."""
    used, most = int(state["connections"]), int(state["max_connections"])
    message = f"{used:,} of {most:,} connections to PostgreSQL are in use; replicas connected: {state['replicas']}."
    remedy = "Raise max_connections, use a pooler, or run fewer workers: without a connection requests get 503."
    scarce = used > _NEARLY_FULL * most
    yield CheckResult("postgresql", "warn" if scarce else "ok", message, remedy if scarce else "")
    risky = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if state.get(name) == "off"]
    if not risky:
        yield CheckResult("postgresql", "ok", "PostgreSQL acknowledges a change only after it is durable.")
    for name in risky:
        message = f"PostgreSQL has {name} = off: a crash can lose changes that were acknowledged."
        remedy = f"Set {name} = on for the server, the database and the role of PETSTORE_DATABASE_URL."
        yield CheckResult("postgresql", "warn", message, remedy)
