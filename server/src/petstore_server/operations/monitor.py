"""The state of the service on all hosts: asked for when it is shown, and checked in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, Protocol

from prometheus_client.core import Metric

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.health import STATES, HostHealth, State
from petstore_server.operations.health import CheckResult
from petstore_server.store import Store

CHECK_SECONDS = 15.0  # between two rounds of checks

OLD_SECONDS = 120.0  # a state that was found longer ago is not shown as the present one

_LIVE_SECONDS = 0.4  # for which a page waits for what the service says of itself
_ROUND_SECONDS = 1.2  # for which a page waits for the checks that were asked for
_STOP_SECONDS = 1.0
_DRAINING = "draining"  # begins the reason of a service that is about to stop

_log = logging.getLogger(__name__)


class Service(Protocol):
    """The service on this host: one process, or a supervisor with its workers."""

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        """What /readyz says: whether the service is ready, and the body."""

    async def collect(self) -> list[Metric]:
        """The metrics of all its processes."""


class Overall(NamedTuple):
    """The state of the service on all hosts: the worst, with its host, or "unknown".

    `checked_at` is when the state was found, on several hosts of the one that was checked longest ago (Unix seconds).
    `silent` are hosts that were not stopped, and have not been checked lately.
    """

    state: State | None
    reason: str
    since: float | None
    checked_at: float | None
    host: str
    hosts: int
    waiting: float
    silent: list[HostHealth]


class HealthMonitor:
    """Finds the state of the service here by `examine`, and shares it in the store. `clock` gives Unix seconds."""

    def __init__(
        self,
        service: Service,
        examine: Callable[[], Awaitable[list[CheckResult]]],
        store: Store,
        host: str,
        clock: Callable[[], float],
    ) -> None:
        self.checks: list[CheckResult] | None = None
        self.checked_at: float | None = None
        self._service, self._examine, self._store = service, examine, store
        self._host, self._clock = host, clock
        self._own: HostHealth | None = None
        self._all: list[HostHealth] = []
        self._remembered = False  # whether the state of before the start of this process is known
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = self._examined_at = -CHECK_SECONDS
        self._examining: asyncio.Task[None] | None = None
        self._wanted: set[asyncio.Task[None]] = set()  # rounds that were asked for, and wait for the one under way

    async def look(self, *, again: bool = False) -> None:
        """Ask for the state, and run the checks if they are old or if `again`; wait for that a short time only."""
        tasks = {self._ask()}
        if again:
            wanted = asyncio.create_task(self._round_from_now())
            self._wanted.add(wanted)
            wanted.add_done_callback(self._wanted.discard)
            tasks.add(wanted)
        elif monotonic() - self._examined_at >= CHECK_SECONDS:
            self._round()
        await asyncio.wait(tasks, timeout=_ROUND_SECONDS if again else _LIVE_SECONDS)

    async def watch(self) -> None:
        """Run the checks, and wait for them. Called every CHECK_SECONDS."""
        await asyncio.wait({self._round()})

    async def close(self) -> None:
        """End what is under way, and store that the service on this host was stopped."""
        if tasks := [task for task in (*self._wanted, self._asking, self._examining) if task is not None]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        if self._own is not None and self._remembered:
            with suppress(ServiceUnavailable, TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._store.health.save(self._own._replace(stopped=True))

    def overall(self) -> Overall:
        """The state of the service on all hosts, as far as it is known now."""
        now = self._clock()
        others = [health for health in self._all if health.host != self._host and not health.stopped]
        silent = [health for health in others if now - health.checked_at > OLD_SECONDS]
        known = [health for health in (self._own, *others) if health is not None and health not in silent]
        waiting = 0.0 if self._asking is None or self._asking.done() else monotonic() - self._asked_at
        if not known:
            return Overall(None, "", None, None, "", 0, waiting, silent)
        worst = max(known, key=lambda health: (STATES.index(health.state), health is self._own))
        checked_at = min(health.checked_at for health in known)
        return Overall(worst.state, worst.reason, worst.since, checked_at, worst.host, len(known), waiting, silent)

    def _ask(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._asked_at = monotonic()
            self._asking = asyncio.create_task(_logged(self._read_state()))
        return self._asking

    def _round(self) -> asyncio.Task[None]:
        if self._examining is None or self._examining.done():
            self._examined_at = monotonic()
            self._examining = asyncio.create_task(_logged(self._check()))
        return self._examining

    async def _round_from_now(self) -> None:
        """Run the checks. A round under way may have read what was changed since, so it is waited for first."""
        if self._examining is not None:
            await asyncio.wait({self._examining})
        await asyncio.wait({self._round()})

    async def _read_state(self) -> None:
        ready, detail = await self._service.readiness()
        state: State = "not ready" if not ready else "degraded" if detail["status"] != "ok" else "ready"
        reason = detail.get("reason", "")
        failed = next((result.message for result in self.checks or () if result.level == "fail"), "")
        if state == "ready" and failed:
            state, reason = "degraded", failed
        if reason.startswith(_DRAINING):  # what it was before is of interest after a restart
            return
        now, before = self._clock(), self._own
        since = min(before.since, now) if before is not None and before.state == state else now
        self._own = HostHealth(self._host, state, reason, since, now)

    async def _check(self) -> None:
        await asyncio.wait({self._ask()})
        self.checks, self.checked_at = await self._examine(), self._clock()
        before = None if self._remembered else await self._store.health.find(self._host)
        self._remembered = True
        if before is not None and self._own is not None and before.state == self._own.state:
            self._own = self._own._replace(since=min(before.since, self._own.since))
        if self._own is not None:
            self._all = await self._store.health.save(self._own)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """Do the work. A store that cannot be used is not an error: the state says so."""
    try:
        await work
    except ServiceUnavailable:
        pass
    except Exception as error:  # noqa: BLE001 - pages show what is known
        _log.error("health check failed", extra={"reason": str(error)}, exc_info=error)
