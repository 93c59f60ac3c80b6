"""The application of one serving process: the gate and the admin port over a backend."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from petstore_server.api import v1
from petstore_server.api.access_log import AccessLog
from petstore_server.api.admin import DRAINING, Readiness, admin_application
from petstore_server.api.callers import Authenticator, ClientAddress
from petstore_server.api.documentation import MAX_DOCUMENT_ADDRESSES, MAX_DOCUMENT_REQUESTS, Documents
from petstore_server.api.gate import Concurrency, Gate
from petstore_server.api.routes import Routes
from petstore_server.api.v2 import orders, usage, webhooks
from petstore_server.api.v2.bodies import MAX_BATCH_BYTES
from petstore_server.api.v2.changes import Changes
from petstore_server.api.v2.shop import BATCH_PATH
from petstore_server.console.application import Console
from petstore_server.console.recent_requests import SAMPLE_SECONDS
from petstore_server.console.rendering import compile_templates
from petstore_server.console.sources import Sources
from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.errors import ServiceUnavailable, StatementFailed
from petstore_server.domain.keys import Environment
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import uses_of
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.operations.monitor import CHECK_SECONDS, HealthMonitor, Service
from petstore_server.operations.webhooks import WebhookService
from petstore_server.runtime.backend import Backend, allowed_connections
from petstore_server.runtime.background import BackgroundTask, background_tasks, run_tasks
from petstore_server.runtime.health import examine_serving, host_identity
from petstore_server.runtime.usage import account_usage, all_usage
from petstore_server.server.listener import PublicServer
from petstore_server.server.scheduler import REFUSED
from petstore_server.settings import Settings
from petstore_server.store import Contents, Store
from petstore_server.store.webhooks import WebhookSummary
from petstore_server.telemetry.logs import lost_lines
from petstore_server.telemetry.metrics import Metrics, build_info

_log = logging.getLogger(__name__)

_IN_USE_SECONDS = 30 * DAY
_REQUEST_DIGITS = 12  # hexadecimal and random, at the end of a request's identifier
_RANDOM_BYTES = 512 * _REQUEST_DIGITS // 2  # read at a time


class Application:
    """Everything one serving process holds. `clock` gives Unix seconds, `token` a random text of this many bytes."""

    def __init__(
        self, settings: Settings, backend: Backend, clock: Callable[[], float], token: Callable[[int], str]
    ) -> None:
        self.backend = backend
        self._started_at = clock()
        self._unready: str | None = None  # the reason that was found last
        self._users: dict[str, int] | None = None  # not known
        self._webhooks: WebhookSummary | None = None
        self.metrics = Metrics()
        self.concurrency = Concurrency()
        self.changes = Changes(backend.store)
        store = backend.store
        served = v1.routes(store, clock, settings) + orders.routes(store, clock) + self.changes.routes()
        served += webhooks.routes(backend.webhooks, clock)
        self.routes = Routes(served + usage.routes(store, backend.usage_counts))
        operations = [operation.id for route in self.routes.all for operation in route.operations.values()]
        self._unused = {used: 0 for operation in operations for used in uses_of(operation)}
        self.authenticator = Authenticator(backend.store.keys, Environment(settings.environment), clock)
        client_address = ClientAddress(settings.trusted_proxies, settings.forwarded_header)
        access_log = AccessLog(settings.access_log, client_address, clock)
        self.gate = Gate(
            routes=self.routes,
            authenticator=self.authenticator,
            limiter=backend.shared or backend.local,
            client_address=client_address,
            documents=Documents(settings),
            document_limiter=MemoryLimiter(BanPolicy(), clock, MAX_DOCUMENT_ADDRESSES, MAX_DOCUMENT_REQUESTS),
            concurrency=self.concurrency,
            metrics=self.metrics,
            usage=backend.activity,
            access_log=access_log if access_log.is_on else None,
            new_request_id=_request_ids(token(6), clock).__next__,
        )
        has_console = settings.console and settings.workers == 1  # with several workers the supervisor has it
        self.console = make_console(settings, store, self, backend.webhooks, clock) if has_console else None
        self.background = background_tasks(settings, backend, self.authenticator.confirm, clock)
        routes = (self.console,) if self.console else ()
        self.admin = admin_application(self.readiness, self.collect, settings, routes)
        self._settings = settings
        self._clock = clock
        self._servers: list[PublicServer] = []
        stats = store.engine.stats
        stats.committed, stats.rebuilt = self.metrics.commits.observe, self.metrics.rebuilds.observe

    def drain(self) -> None:
        """Report from now on that this process is about to stop, and hold no request any more."""
        self.gate.draining = True
        self.changes.end()
        if self.backend.deliveries is not None:
            self.backend.deliveries.end()

    def public_server(self) -> PublicServer:
        """A server for the public port, on the running event loop. Raises SettingsError."""
        connections = allowed_connections(self._settings.max_connections)
        flow_of = self.authenticator.account_of
        gate, tracing, limits = self.gate, self.backend.tracing, {BATCH_PATH.encode(): MAX_BATCH_BYTES}
        traced = tracing and tracing.traced(gate.respond, self.routes, gate.client_address)
        respond = traced or gate.respond
        server = PublicServer(respond, self._clock, connections, flow_of=flow_of, body_limits=limits)
        self._servers.append(server)
        return server

    async def collect(self) -> list[Metric]:
        """All metrics of this process. Readiness is evaluated for them: nothing else may ever ask."""
        ready, _ = await self.readiness()
        if ready and self._settings.usage_daily_retention_days:
            with suppress(ServiceUnavailable, StatementFailed):  # and keep the numbers that were read last
                self._users = self._unused | await self.backend.store.usage.users(self._clock() - _IN_USE_SECONDS)
        if ready and self.backend.deliveries is not None:
            with suppress(ServiceUnavailable, StatementFailed):
                self._webhooks = await self.backend.store.webhooks.summary()
        return [*self.metrics.collect(), *self._observed(ready)]

    async def readiness(self) -> Readiness:
        """What /readyz reports: 503 while draining, or while orders cannot be served; degraded is ready (D19).

        The log has each change between ready and not ready, but for draining.
        """
        found = await self._evaluate_readiness()
        if found is not DRAINING:
            reason = None if found.ready else str(found.detail["reason"])
            if reason is not None and self._unready is None:
                _log.error("not ready", extra={"reason": reason})
            elif reason is None and self._unready is not None:
                _log.info("ready again", extra={"reason": self._unready})
            self._unready = reason
        return found

    async def _evaluate_readiness(self) -> Readiness:
        if self.gate.draining:
            return DRAINING
        for task in self.background:
            if stalled := task.stalled():
                return Readiness.unavailable(stalled)
        shared, store = self.backend.shared, self.backend.store
        try:
            await self.backend.check()
            if not self.authenticator.knows_keys():
                await store.check_keys()
        except ServiceUnavailable as error:
            return Readiness.unavailable(error.reason)
        fault = shared and (shared.fault or await shared.check())
        reason = f"each process counts limits by itself: {fault}" if fault else None
        for check in (store.check_keys, store.check_others):
            try:
                await check()
            except ServiceUnavailable as error:
                reason = reason or error.reason
        return Readiness(True, {"status": "degraded", "reason": reason} if reason else {"status": "ok"})

    def _observed(self, ready: bool) -> Iterator[Metric]:
        """The metrics that are kept elsewhere."""
        limiter, shared, servers = self.backend.local, self.backend.shared, self._servers
        yield GaugeMetricFamily("petstore_ready", "1 if /readyz returns 200.", ready)
        yield build_info()
        started = "When the process started, in Unix seconds."
        yield GaugeMetricFamily("petstore_start_timestamp_seconds", started, self._started_at)
        yield CounterMetricFamily("petstore_strikes", "Requests that counted as strikes.", limiter.strikes)
        yield CounterMetricFamily("petstore_bans", "Bans that began.", limiter.bans)
        separate = "Decisions of processes that counted limits by themselves because Redis did not answer."
        yield CounterMetricFamily("petstore_limit_decisions_local", separate, shared.local_decisions if shared else 0)
        degraded = "Processes that count limits by themselves because Redis does not answer."
        yield GaugeMetricFamily("petstore_limits_degraded", degraded, shared is not None and shared.fault is not None)
        lost = "Times that Redis was found to have lost its counts."
        yield CounterMetricFamily("petstore_limit_counts_lost", lost, shared.losses if shared else 0)
        ahead = "Seconds by which the clock is ahead of that of Redis; negative if it is behind."
        yield GaugeMetricFamily("petstore_clock_ahead_seconds", ahead, shared.clock_ahead if shared else 0.0)
        old = "Connections to PostgreSQL that were refused because it is an old primary."
        refused_servers = self.backend.store.engine.stats.old_primaries()
        yield CounterMetricFamily("petstore_old_primaries_refused", old, refused_servers)
        connections = sum(len(server.connections) for server in servers)
        yield GaugeMetricFamily("petstore_connections", "Connections open on the public port.", connections)
        why = "Connections refused or cut off: PETSTORE_MAX_CONNECTIONS, or a bound in bytes over all of them."
        refused = {reason: sum(server.refused[reason] for server in servers) for reason in REFUSED}
        yield _labelled(CounterMetricFamily("petstore_connections_refused", why, labels=("reason",)), refused)
        held = "Requests for changes that are held until something changes."
        yield GaugeMetricFamily("petstore_held_requests", held, self.changes.held)
        too_many = "Requests shed with 503 because too many were being answered at the same time."
        yield CounterMetricFamily("petstore_requests_shed", too_many, self.concurrency.refused)
        yield CounterMetricFamily("petstore_log_lines_lost", "Log lines that could not be written.", lost_lines())
        if self._users is not None:
            used = "Accounts that used an operation in 30 days."
            yield _labelled(GaugeMetricFamily("petstore_accounts_using", used, labels=("operation",)), self._users)
        if (contents := self.backend.store.contents) is not None:
            yield from _of_store(contents)
        if self.backend.deliveries is not None:
            yield from _of_webhooks(self.backend.deliveries.outcomes, self._webhooks, self._clock())


def _of_store(contents: Contents) -> Iterator[Metric]:
    """What the last look into the store has found."""
    has = {kind: getattr(contents, kind) for kind in ("orders", "accounts", "keys")}
    yield _labelled(GaugeMetricFamily("petstore_store_has", "1 if the store has any.", labels=("kind",)), has)
    last = "When the last good backup of the store began, in Unix seconds; 0 if none is known."
    yield GaugeMetricFamily("petstore_last_backup_timestamp_seconds", last, contents.backed_up_at or 0.0)
    if contents.connections is not None:
        used, most = "Connections to PostgreSQL in use, of all programs.", "Connections that PostgreSQL allows."
        yield GaugeMetricFamily("petstore_postgresql_connections", used, contents.connections)
        yield GaugeMetricFamily("petstore_postgresql_max_connections", most, contents.max_connections)


def _of_webhooks(outcomes: Mapping[str, int], found: WebhookSummary | None, now: float) -> Iterator[Metric]:
    """What this process has delivered, and what the last look at the webhooks has found; `now` in Unix seconds."""
    attempts = CounterMetricFamily("petstore_webhook_deliveries", "Attempts to deliver a message.", labels=("outcome",))
    yield _labelled(attempts, {outcome: outcomes[outcome] for outcome in ("delivered", "failed")})
    if found is not None:
        states = {state: getattr(found, state) for state in ("active", "failing", "stopped", "paused")}
        states["active"] -= found.failing
        yield _labelled(GaugeMetricFamily("petstore_webhooks", "Webhooks by state.", labels=("state",)), states)
        lag = "Seconds since the first change that a webhook has not delivered; 0 if there is none."
        behind = 0.0 if found.behind_since is None else max(0.0, now - found.behind_since)
        yield GaugeMetricFamily("petstore_webhook_lag_seconds", lag, behind)


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in values.items():
        family.add_metric((label,), value)
    return family


def _request_ids(prefix: str, clock: Callable[[], float]) -> Iterator[bytes]:
    """Identifiers that differ in every process and for every request, at little more than the cost of counting.

    With consecutive ones, each client would see how many requests others make. They begin with the time, so that they
    ascend: the audit log has an index of them, in which random ones would touch a page for each change.
    """
    start = f"{prefix}-".encode()
    while True:
        digits = os.urandom(_RANDOM_BYTES).hex().encode()
        for at in range(0, len(digits), _REQUEST_DIGITS):
            yield b"%s%x%s" % (start, int(clock() * 1_000_000), digits[at : at + _REQUEST_DIGITS])


def make_console(
    settings: Settings, store: Store, service: Service, webhooks: WebhookService, clock: Callable[[], float]
) -> Console:
    """The console over an open store. `clock` gives Unix seconds. Close its `sources`."""
    host, examine = host_identity(settings), partial(examine_serving, settings, store, clock)
    monitor = HealthMonitor(service, examine, store, host, clock)
    usage_of, usage_of_all = partial(account_usage, settings, store), partial(all_usage, settings, store)
    return Console(Sources(settings, store, service, monitor, usage_of, usage_of_all, webhooks, clock))


async def run_console(console: Console) -> None:
    """Prepare the console, check the service and sample its metrics until cancelled; then close its sources."""
    asyncio.get_running_loop().run_in_executor(None, compile_templates)
    sources = console.sources
    try:
        await sources.monitor.look()
        sample = BackgroundTask("sample requests", sources.sample, SAMPLE_SECONDS)
        await run_tasks([sample, BackgroundTask("check health", sources.monitor.watch, CHECK_SECONDS)])
    finally:
        await sources.close()
