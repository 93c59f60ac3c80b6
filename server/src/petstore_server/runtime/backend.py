"""The composition root of a serving process: the store and the limiter that the settings select, and its traces."""

import asyncio
import logging
import re
import resource
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from petstore_server.batching import in_halves
from petstore_server.domain.errors import KeyNotFound, ServiceUnavailable, StatementFailed, WebhookSecretChanged
from petstore_server.domain.usage import Activity, Granularity, UsageCounts, merge
from petstore_server.limits.counters import CountersUnavailable
from petstore_server.limits.fallback import FallbackLimiter
from petstore_server.limits.memory import MemoryLimiter, Unsaved
from petstore_server.limits.usage_recorder import NoUsageRecorder, UsageRecorder
from petstore_server.operations.webhooks import WebhookService
from petstore_server.runtime.opening import (
    ban_policy,
    is_sqlite,
    opened_store,
    redis_counters,
    require_installed,
    webhook_service,
)
from petstore_server.settings import Settings, SettingsError
from petstore_server.store import AccessVersion, Store

if TYPE_CHECKING:
    # Extras, loaded where they are needed.
    from petstore_server.runtime.tracing import Tracing
    from petstore_server.webhooks.delivery import Deliveries
    from petstore_server.webhooks.sending import Sender

_SAVING_SECONDS = 5.0  # for which a save goes on that looks for what the store refuses
_REFUSED_SECONDS = 60.0  # before a row that the store refused is tried again
_OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_HTTP_URL = re.compile(r"https?://[^/]", re.IGNORECASE)
_OTLP_PROTOCOL = "http/protobuf"
_OTLP_HEADER = re.compile(r"[\w!#$%&'*+.^`|~-]+[ \t]*=[ \t]*[ !#-+\--:<-[\]-~]*", re.ASCII)
_SET_REDIS = "set PETSTORE_REDIS_URL=redis://HOST:6379/0"
_CHECK_SECONDS = 2.0

_RESERVED_FILES = 256
"""File descriptors kept for everything but client connections."""

_DEFAULT_CONNECTIONS = 10_000
"""The default maximum if the limit on open files allows it. A connection takes some 10 KB, and 120 KB at most."""

_log = logging.getLogger(__name__)


_KINDS = (*Unsaved._fields, *Activity._fields)
_Count = tuple[int, Any, Any]  # what was counted: its place in _KINDS, its key, and the count


def _to_counts(unsaved: Unsaved, activity: Activity) -> list[_Count]:
    counted: tuple[Mapping[Any, Any], ...] = unsaved.usage, {ban.key_id: ban for ban in unsaved.bans}, *activity
    return [(kind, key, value) for kind, values in enumerate(counted) for key, value in values.items()]


def _from_counts(counts: Sequence[_Count]) -> tuple[Unsaved, Activity]:
    usage, bans, *activity = counted = [dict[Any, Any]() for _ in _KINDS]
    for kind, key, value in counts:
        counted[kind][key] = value
    return Unsaved(usage, tuple(bans.values())), Activity(*activity)


@dataclass(eq=False)
class Backend:
    """The store and the limiter of one serving process. Made by `opened_backend`.

    `shared` counts in Redis, with `local` in an outage; None if `local` always counts. `deliveries` is None without
    webhooks.
    """

    store: Store
    local: MemoryLimiter
    shared: FallbackLimiter | None
    activity: UsageRecorder
    _access_version: AccessVersion
    webhooks: WebhookService
    deliveries: "Deliveries | None" = None
    tracing: "Tracing | None" = None
    _saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ban_saves: int = 0
    _refused: dict[tuple[int, Any], float] = field(default_factory=dict)  # counts refused, until tried again

    async def watch_access(self, confirm: Callable[[bool], None]) -> None:
        """Pass to `confirm` whether another process changed accounts, keys or bans. Raises ServiceUnavailable.

        `confirm` is called before the bans are read, which many requests for large pages may delay: a key that was
        revoked, or an account that sees less, must not depend on them.
        """
        version = await self.store.access_version()
        changed = version != self._access_version
        confirm(changed)
        if changed:
            saves = self._ban_saves
            bans = await self.store.usage.bans()
            if saves == self._ban_saves:  # else `bans` may lack one that was saved meanwhile: the next round reads it
                if version.history != self._access_version.history:
                    _log.warning("store has another history")
                    self.activity.forget_saved()
                self.local.replace_bans(bans)
                self._access_version = version

    async def save(self) -> None:
        """Save what was counted since the last call, in as many transactions as that needs.

        Raises ServiceUnavailable, and then keeps what was not saved for the next call. What the store refuses is lost.
        """
        more = True
        while more:
            async with self._saving:
                saving = asyncio.ensure_future(self._save())
                try:
                    await asyncio.wait({saving})  # which a cancellation does not end
                except asyncio.CancelledError:  # the store may save it all the same, so its outcome is needed
                    with suppress(ServiceUnavailable):
                        await saving
                    raise
                more = saving.result()

    async def _save(self) -> bool:
        """Save what was counted, and log the bans among it; or keep it. Return whether there may be more."""
        unsaved, activity = self.local.take_unsaved(), self.activity.take()
        if self.shared is not None:  # which has the usage; local counts are not worth keeping
            unsaved = unsaved._replace(usage={})
        if not (unsaved.usage or unsaved.bans or activity):
            return False
        if not await self._save_counts(_to_counts(unsaved, activity)):
            return False
        self.local.saved(unsaved)
        self._ban_saves += bool(unsaved.bans)
        for ban in unsaved.bans:
            account = None
            with suppress(KeyNotFound, ServiceUnavailable, StatementFailed):
                account = (await self.store.keys.find(ban.key_id)).account
            fields = {"key": ban.key_id, "account": account, "ban_seconds": ban.until - ban.began}
            _log.warning("key banned", extra={**fields, "ban_level": ban.level, "strikes": ban.strikes})
        return self.activity.max_taken in (len(activity.accounts), len(activity.keys))

    async def _save_counts(self, counts: Sequence[_Count]) -> bool:
        """Save counts, and put back what no time was left for; return whether there was time for all.

        Counts that the store refuses are lost, and for a while what is counted later; the first is logged.
        """
        ends = monotonic() + _SAVING_SECONDS
        self._refused = {count: until for count, until in self._refused.items() if monotonic() < until}
        counts = [count for count in counts if count[:2] not in self._refused]
        left, failures = counts.copy(), list[tuple[_Count, Exception]]()

        async def save(part: Sequence[_Count]) -> None:
            if monotonic() <= ends or len(left) == len(counts):  # each round saves or refuses something
                unsaved, activity = _from_counts(part)
                await self.store.usage.save(*unsaved, activity)
                del left[: len(part)]

        def refuse(count: _Count, error: Exception) -> None:
            failures.append((count, error))
            left.remove(count)

        try:
            await in_halves(save, counts, refuse)
        finally:
            unsaved, activity = _from_counts(left)
            self.local.put_back(unsaved)
            self.activity.put_back(activity)
            self._refused |= {count[:2]: monotonic() + _REFUSED_SECONDS for count, _ in failures}
            for (kind, key, _), error in failures[:1]:
                first = {"rows": len(failures), "first": f"{_KINDS[kind]} {key}", "retry_in_seconds": _REFUSED_SECONDS}
                _log.error("usage not saved", extra=first, exc_info=error)
        return not left

    async def usage_counts(self, account_id: int, start: int, end: int, by: Granularity) -> dict[int, UsageCounts]:
        """The usage history of an account, with what is not saved yet. Raises ServiceUnavailable."""
        async with self._saving:  # so that nothing is on its way to the store, and would count twice or not at all
            saved = await self.store.usage.counts(account_id, start, end, by)
            pending = self.activity.pending(account_id)
        unsaved = [(hour, counts) for hour, counts in pending if start <= by.start(hour) < end]
        return merge([*saved.items(), *unsaved], by)

    async def check(self) -> None:
        """Prove that orders can be served to keys that are known. Raises ServiceUnavailable with the reason."""
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self.store.check_orders()
        except TimeoutError:
            reason = self.store.engine.fault() or f"the store did not respond within {_CHECK_SECONDS:g} seconds"
            raise ServiceUnavailable(reason) from None
        except StatementFailed as error:
            raise ServiceUnavailable(error.message.rstrip(".")) from error


@asynccontextmanager
async def opened_backend(
    settings: Settings,
    clock: Callable[[], float],
    redis_clock: Callable[[], float] | None = None,
    tracing: "Tracing | None" = None,
) -> AsyncIterator[Backend]:
    """What a server needs, closed at the end, `tracing` too; an older store is migrated. `clock` gives Unix seconds.

    A test may give `redis_clock` instead of Redis's own. Raises SettingsError, StoreUnusable, ServiceUnavailable.
    """
    require_servable(settings)
    local, shared = MemoryLimiter(ban_policy(settings), clock), None
    async with AsyncExitStack() as opened:
        if tracing is not None:
            opened.push_async_callback(tracing.close)
        if settings.redis_url is not None:
            shared = FallbackLimiter(redis_counters(settings, redis_clock), local, clock)
            if tracing is not None:
                tracing.trace_redis(shared.counters)
            opened.push_async_callback(shared.counters.close)
            try:
                await shared.start()
            except CountersUnavailable as error:
                reason = error.reason.rstrip(".")
                raise SettingsError(f"PETSTORE_REDIS_URL names a Redis that cannot be used: {reason}.") from None
        maximum, first = None if shared is None else shared.newest, settings.assigned_ids_from
        opening = opened_store(settings.database_url, maximum, migrate=True, first_assigned=first)
        store = await opened.enter_async_context(opening)
        if tracing is not None:
            tracing.trace_store(store.engine, "sqlite" if is_sqlite(settings.database_url) else "postgresql")
        activity = UsageRecorder() if settings.usage_daily_retention_days else NoUsageRecorder()
        service = webhook_service(settings, store, clock)
        deliveries = await _deliveries(store, service.sender) if service.enabled else None
        if deliveries is not None:
            opened.push_async_callback(deliveries.close)
        version = await store.access_version()
        backend = Backend(store, local, shared, activity, version, service, deliveries, tracing)
        if shared is not None:
            shared.counters.use_store(await store.engine.identity())
        local.load({} if shared else await store.usage.all(), await store.usage.bans())
        try:
            yield backend
        finally:
            with suppress(ServiceUnavailable):
                await backend.save()


async def _deliveries(store: Store, sender: "Sender") -> "Deliveries":
    """The deliveries of this process. Raises SettingsError if other secrets have signed before."""
    from petstore_server.webhooks.delivery import Deliveries

    try:
        await store.webhooks.use_secret(sender.secrets.digest)
    except WebhookSecretChanged as error:
        remedy = "set that one, or stop the service and run: petstore webhooks rotate --all"
        raise SettingsError(f"{error.reason}; {remedy}.") from None
    return Deliveries(store, sender, secrets.token_hex(8), secrets.SystemRandom().random)


def require_servable(settings: Settings) -> None:
    """Reject settings under which processes would count limits separately. Raises SettingsError."""
    if settings.redis_url is None and not is_sqlite(settings.database_url):
        raise SettingsError(f"PostgreSQL needs Redis to count limits: {_SET_REDIS}.")
    if settings.redis_url is None and settings.workers > 1:
        raise SettingsError(f"More than one worker needs Redis to count limits: {_SET_REDIS}, or PETSTORE_WORKERS=1.")


def allowed_connections(wanted: int) -> int:
    """The maximum number of connections: `wanted`, or, if that is 0, what the limit on open files allows.

    Raises that limit as far as the system permits. Raises SettingsError if it allows fewer than are wanted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(wanted, _DEFAULT_CONNECTIONS) + _RESERVED_FILES
    if files > soft:
        files = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    allowed = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _RESERVED_FILES)
    if wanted > allowed:
        problem = f"PETSTORE_MAX_CONNECTIONS is {wanted}, but the limit on open files allows {allowed}"
        remedy = "raise that limit (ulimit -n, or LimitNOFILE in a systemd unit) or lower the setting"
        raise SettingsError(f"{problem}: {remedy}.")
    return wanted or min(allowed, _DEFAULT_CONNECTIONS)


def wants_tracing(environ: Mapping[str, str]) -> bool:
    """Whether the variables of OpenTelemetry ask for spans of requests. Raises SettingsError if none can be sent."""
    endpoint = next((name for name in _OTLP_ENDPOINTS if environ.get(name)), None)
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    if endpoint is None or disabled:
        return False
    if not _HTTP_URL.match(environ[endpoint]):
        raise SettingsError(f"{endpoint} must be an http:// or https:// URL.")
    for name in ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"):
        if environ.get(name) not in (None, "", _OTLP_PROTOCOL):
            raise SettingsError(f"{name} must be {_OTLP_PROTOCOL}, the only protocol here, or not set.")
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        headers = (header.strip() for header in environ.get(name, "").split(","))
        if not all(header == "" or _OTLP_HEADER.fullmatch(header) for header in headers):  # which its library would log
            raise SettingsError(f"{name} must be NAME=VALUE, or several of them with commas in between.")
    require_installed("opentelemetry.exporter.otlp.proto.http", f"{endpoint} is set", "otel")
    return True


def tracing(environ: Mapping[str, str], settings: Settings) -> "Tracing | None":
    """What makes spans of requests, if the variables of OpenTelemetry ask for it. Raises SettingsError."""
    if not wants_tracing(environ):
        return None
    from petstore_server.runtime.tracing import Tracing

    try:
        return Tracing(settings.environment)
    except ValueError as error:
        raise SettingsError(f"OpenTelemetry does not take its variables: {str(error).rstrip('.')}.") from None
