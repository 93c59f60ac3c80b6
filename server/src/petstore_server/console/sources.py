"""Data of the console's pages: the store, the running service, uploads.

A source may be slow or down: a reading is a value and its age, or why there is none.
"""

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.responses import Response

from petstore_server.console.import_jobs import ImportJobs
from petstore_server.console.recent_requests import RecentRequests
from petstore_server.console.security import RefusedSignIns
from petstore_server.domain.accounts import Account
from petstore_server.domain.errors import ServiceUnavailable, StatementFailed
from petstore_server.domain.orders import Status
from petstore_server.domain.sessions import Session
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Granularity, ResponseCounts, Usage, UsageCounts
from petstore_server.operations.monitor import HealthMonitor, Service
from petstore_server.operations.usage import AccountUsage, UsageReport, report_usage, with_usage
from petstore_server.operations.webhooks import WebhookService
from petstore_server.settings import Settings
from petstore_server.store import AccessVersion, Store

T = TypeVar("T")

SLOW = "This was not read in time: its source is slow, or down."
_BROKEN = "This cannot be read; the log of the server says why."

_SESSION_SECONDS = 0.7  # for which a page waits for its session: half of its time
_MAX_SESSIONS = 100
_LATE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Reading(NamedTuple, Generic[T]):
    """A value, None if there is none yet; the seconds since it was read; and why it is not current, or empty."""

    value: T | None = None
    age: float = 0.0
    problem: str = ""

    def required(self) -> T:
        """The value. Raises ServiceUnavailable if there is a problem."""
        if self.problem:
            raise ServiceUnavailable(self.problem.removesuffix("."))
        return self.value  # type: ignore[return-value]  # None only if that was read


_late = set[asyncio.Task[Any]]()  # cancelled, but not ended yet: a driver may take seconds to give up a connection


async def read_within(work: Coroutine[Any, Any, T], seconds: float) -> Reading[T]:
    """Read a value; after `seconds`, cancel the read without waiting for it to end.

    Raises what it raises, except ServiceUnavailable.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        return Reading(task.result()) if task.done() else Reading(problem=SLOW)
    except ServiceUnavailable as error:
        return Reading(problem=error.explanation)
    finally:
        if not task.done():
            task.cancel()
            _late.add(task)
            task.add_done_callback(_end_late)


def _end_late(task: asyncio.Task[Any]) -> None:
    _late.discard(task)
    if not task.cancelled():
        task.exception()  # which is not needed any more


class Cached(Generic[T]):
    """Reads a value in the background, once for concurrent callers.

    A page waits `missing` seconds for a value that was never read, `old` for one that is old. It is old after `rest`
    times as long as it took to read: those of a small store are current, and reading those of a large one takes at most
    that part of the time.
    """

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, missing: float = 0.25, old: float = 0.02, rest: float = 10.0
    ) -> None:
        self._read = read
        self._missing, self._old, self._rest = missing, old, rest
        self._read_at: float | None = None
        self._kept_seconds: float  # there is one as soon as there is a value
        self._value: T | None = None
        self._problem = ""
        self._reading: asyncio.Task[None] | None = None

    async def get(self) -> Reading[T]:
        """The value, read again if it is old and that is quick; else the last one. Never raises."""
        if self._read_at is None or monotonic() - self._read_at >= self._kept_seconds:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._update())
            await asyncio.wait({self._reading}, timeout=self._missing if self._read_at is None else self._old)
        if self._read_at is None:
            return Reading(problem=self._problem)
        return Reading(self._value, monotonic() - self._read_at, self._problem)

    async def close(self, wait_seconds: float = 5.0) -> None:
        """Wait for a value that is being read, and cancel that after `wait_seconds`.

        It may hold a connection that closes only after several steps, or a thread that cannot be cancelled.
        """
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=wait_seconds)
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading

    async def _update(self) -> None:
        began = monotonic()
        try:
            self._value = await self._read()
        except ServiceUnavailable as error:
            self._problem = error.explanation
        except Exception as error:  # noqa: BLE001 - a page shows what it has
            _log.error("console page lacks a value", exc_info=error)
            self._problem = _BROKEN
        else:
            self._read_at, self._problem = monotonic(), ""
            self._kept_seconds = self._rest * (self._read_at - began)


class AccountStatistics(NamedTuple):
    """All accounts by name, with their usage; what the windows were charged with, and what was counted in 24 hours."""

    rows: list[AccountUsage]
    windows: Reading[Mapping[int, Usage]]
    totals: Reading[Mapping[int, UsageCounts]]


class RequestHistory(NamedTuple):
    """Usage, and responses by hour; both by start (Unix seconds)."""

    usage: UsageReport
    responses: Mapping[int, ResponseCounts]


@dataclass(eq=False)
class Sources:
    """Everything that pages call.

    What several pages show and is expensive with many accounts and orders is read in the background. `clock` gives Unix
    seconds. `is_sample` means that the store has sample data.
    """

    settings: Settings
    store: Store
    service: InitVar[Service]
    monitor: HealthMonitor
    usage_of: Callable[[int], Coroutine[Any, Any, Usage]]
    all_usage: InitVar[Callable[[], Awaitable[Mapping[int, Usage]]]]
    webhooks: WebhookService
    clock: Callable[[], float]
    is_sample: bool = False
    sign_in_command: str = "petstore console"

    def __post_init__(self, service: Service, all_usage: Callable[[], Awaitable[Mapping[int, Usage]]]) -> None:
        self.imports = ImportJobs(self.settings.database_url, self.clock)
        self.requests = RecentRequests(service.collect, self.clock)
        self.recent = Cached(self.requests.report, missing=0.4, old=0.4, rest=0.0)  # unless a process does not answer
        self.refused_sign_ins = RefusedSignIns()
        self.submissions: dict[bytes, asyncio.Future[Response]] = {}
        """The responses to the forms of the last seconds, by what identifies a submission: page, path and content."""

        self.order_counts: Cached[Mapping[Status, int]] = Cached(self.store.search.count_by_status)
        self.request_history = {days: Cached(partial(self._read_history, days)) for days in (1, 7)}
        self._windows = Cached(all_usage)
        self._totals = Cached(self._read_totals)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._epoch: str | None = None
        self._accounts: Sequence[Account] = ()
        self._version: AccessVersion | None = None

    async def find_session(self, token: str, now: float) -> Session | None:
        """The session of a token, None if there is none at `now` (Unix seconds).

        While the store does not respond, so that an operator sees why, it is one that was found before. One that ended
        meanwhile is over as soon as the store responds. Raises ServiceUnavailable if none was found before.
        """
        reading = await read_within(self.store.sessions.find(token, now), _SESSION_SECONDS)
        known = self._sessions.pop(token, None)
        found = known if reading.problem and known and known.expires_at > now else reading.required()
        if found is not None:
            self._sessions[token] = found
            if len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return found

    async def secret_of(self, operator: str) -> str:
        """A secret of an operator without a session, the same on every host, until the store is restored.

        It is made of the store's `epoch`, which no page shows. Raises ServiceUnavailable if that was never read.
        """
        reading = await read_within(self.store.epoch(), _SESSION_SECONDS)
        self._epoch = reading.value or self._epoch
        if self._epoch is None:
            reading.required()
        return hmac.new(str(self._epoch).encode(), b"operator:" + operator.encode(), sha256).hexdigest()

    def forget_session(self, token: str) -> None:
        self._sessions.pop(token, None)

    async def sample(self) -> None:
        """Sample the metrics, and store what they show. Called every SAMPLE_SECONDS."""
        await self.requests.sample()
        if self.settings.usage_daily_retention_days:
            with suppress(ServiceUnavailable, StatementFailed):  # it is stored with the next sample
                await self.requests.save(self.store.responses.add)

    async def accounts(self) -> AccountStatistics:
        """All accounts, which are current, with their usage. Raises ServiceUnavailable if the store cannot be read."""
        version = await self.store.access_version()  # of accounts, keys and bans
        if version != self._version:
            self._accounts, self._version = await self.store.accounts.list(), version
        windows, totals = await asyncio.gather(self._windows.get(), self._totals.get())
        # On a thread, because there may be tens of thousands.
        rows = await asyncio.to_thread(with_usage, self._accounts, windows.value, totals.value, self.clock())
        return AccountStatistics(rows, windows, totals)

    async def close(self) -> None:
        self.refused_sign_ins.end_second()
        await self.imports.close()
        await self.monitor.close()
        if late := {task for task in _late if task.get_loop() is asyncio.get_running_loop()}:
            await asyncio.wait(late, timeout=_LATE_SECONDS)
        own: list[Cached[Any]] = [
            self.recent,
            self.order_counts,
            self._windows,
            self._totals,
            *self.request_history.values(),
        ]
        for reading in own:
            await reading.close()

    async def _read_totals(self) -> Mapping[int, UsageCounts]:
        now = self.clock()
        return await self.store.usage.totals(Granularity.HOUR.start(now - DAY), int(now) + 1)

    async def _read_history(self, days: int) -> RequestHistory:
        start, end = self.clock() - days * DAY, self.clock() + 1
        usage = await report_usage(self.store, None, start, end, Granularity.HOUR)
        return RequestHistory(usage, await self.store.responses.hours(Granularity.HOUR.start(start), int(end)))
