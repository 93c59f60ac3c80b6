"""Background tasks: what a serving process repeats, and how a failure of it is reported."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic

from petstore_server.domain.errors import ServiceUnavailable, StatementFailed
from petstore_server.domain.imports import REJECTS_LIFETIME
from petstore_server.domain.placements import KEY_LIFETIME
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Granularity
from petstore_server.operations.orders import claim_orders
from petstore_server.runtime.backend import Backend
from petstore_server.settings import Settings
from petstore_server.store import Store
from petstore_server.store.usage import UsageStore

ROUND_SECONDS = 0.25
"""Pause between rounds: saved counts and noticed changes are both promised to be less than a second old (D9, D12)."""

STALLED_SECONDS = 10.0
"""A task that has not finished a round for this much longer than its pause is stalled: the process is not ready."""

_VERIFY_SECONDS = 1.0
_FORGET_SECONDS = 60.0
_COMPACT_SECONDS = 600.0
_COMPACT_GAP_SECONDS = 0.05
_CLAIM_SECONDS = 10.0
_ROUND_MAX_SECONDS = 5.0  # for which a round goes on that compacts or sets owners
_MAX_FORGOTTEN = 10_000
_MAX_BACKOFF = 5.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class BackgroundTask:
    """Work that is repeated for as long as the process runs.

    An unusable store is logged when it begins and when it ends. Any other error is logged with its traceback, and the
    work is tried again after a pause that doubles up to five seconds: no error ends the task.
    """

    name: str
    work: Callable[[], Awaitable[object]]
    pause: float = ROUND_SECONDS
    clock: Callable[[], float] = monotonic
    _finished_at: float | None = None
    _unusable: str | None = None
    _failures: int = 0

    async def run(self) -> None:
        """Repeat the work until cancelled."""
        self._finished_at = self.clock()
        pause = self.pause
        while True:
            await asyncio.sleep(pause)
            pause = await self._round()

    def stalled(self) -> str | None:
        """Why the task makes no progress; None while it does, and before it runs."""
        if self._finished_at is None:
            return None
        idle = self.clock() - self._finished_at
        if idle < self.pause + STALLED_SECONDS:
            return None
        state = "fails" if self._failures else "has not finished"
        return f"the background task '{self.name}' {state} for {idle:.0f} seconds; the log says more"

    async def _round(self) -> float:
        """Do the work once; return the seconds to pause before the next time."""
        try:
            await self.work()
        except ServiceUnavailable as error:
            if self._unusable is None:
                _log.error("store unusable", extra={"task": self.name, "reason": error.reason})
            self._unusable = error.reason
        except Exception as error:  # noqa: BLE001 - a defect in one round must not end the task
            self._failures += 1
            pause = max(self.pause, min(self.pause * 2.0 ** min(self._failures, 10), _MAX_BACKOFF))
            _log.error("background task failed", extra={"task": self.name, "retry_in_seconds": pause}, exc_info=error)
            if isinstance(error, StatementFailed):  # what one row has does not make the process unready
                self._finished_at = self.clock()
            return pause
        else:
            if self._unusable is not None:
                _log.info("store usable again", extra={"task": self.name, "reason": self._unusable})
            self._unusable = None
        self._failures = 0
        self._finished_at = self.clock()
        return self.pause


async def run_tasks(tasks: Sequence[BackgroundTask]) -> None:
    """Run all next to each other until cancelled: a disk that is slow to write must not delay a revocation."""
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(task.run())


async def compact_history(usage: UsageStore, settings: Settings, now: float) -> None:
    """Sum the hours that are old enough into days, and delete the days that are too old; `now` in Unix seconds.

    Ends after some seconds. The next call continues: after the retention was shortened, there may be months to sum.
    """
    ends = monotonic() + _ROUND_MAX_SECONDS
    kept = settings.usage_hourly_retention_days, settings.usage_daily_retention_days
    hours_before, days_before = (Granularity.DAY.start(now) - days * DAY for days in kept)
    while await usage.compact(hours_before, days_before) and monotonic() < ends:  # noqa: ASYNC110 - a pause
        await asyncio.sleep(_COMPACT_GAP_SECONDS)


async def claim_some(store: Store, clock: Callable[[], float], after: int) -> int:
    """Set the owners of orders that 1.0.0 placed, for some seconds; return what to give as `after` next time.

    1.0.0 assigns ascending identifiers, so what it places later is found from there on.
    """
    ends = monotonic() + _ROUND_MAX_SECONDS
    async with aclosing(claim_orders(store, clock, after)) as batches:
        async for claimed in batches:
            after = claimed.last
            if monotonic() >= ends:
                break
    return after


def background_tasks(
    settings: Settings, backend: Backend, confirm: Callable[[bool], None], clock: Callable[[], float]
) -> list[BackgroundTask]:
    """The tasks of a process that serves requests. `confirm` is that of `watch_access`; `clock` gives Unix seconds."""

    async def forget() -> None:
        backend.local.forget()
        await backend.store.orders.forget(clock() - KEY_LIFETIME, _MAX_FORGOTTEN)
        await backend.store.imports.forget(clock() - REJECTS_LIFETIME, _MAX_FORGOTTEN)

    claimed_up_to = 0

    async def claim() -> None:
        nonlocal claimed_up_to
        claimed_up_to = await claim_some(backend.store, clock, claimed_up_to)

    shared, deliveries, usage = backend.shared, backend.deliveries, backend.store.usage
    return [
        *([] if deliveries is None else [BackgroundTask("deliver webhooks", lambda: deliveries.look(clock()))]),
        *([] if shared is None else [BackgroundTask("check limits", shared.check)]),
        BackgroundTask("watch access", lambda: backend.watch_access(confirm)),
        BackgroundTask("verify the store", backend.store.engine.verify, _VERIFY_SECONDS),
        BackgroundTask("save usage", backend.save),
        BackgroundTask("forget", forget, _FORGET_SECONDS),
        BackgroundTask("compact usage history", lambda: compact_history(usage, settings, clock()), _COMPACT_SECONDS),
        BackgroundTask("set owners", claim, _CLAIM_SECONDS),
    ]
