"""The background tasks of a serving process: they keep failing work going, and report work that makes no progress."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import KEY_LIFETIME
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Granularity
from petstore_server.runtime.backend import Backend
from petstore_server.settings import Settings
from petstore_server.store.usage import UsageStore

ROUND_SECONDS = 0.25
"""Pause between rounds: saved counts and noticed changes are both promised to be less than a second old (D9, D12)."""

STALLED_SECONDS = 10.0
"""A task that has not finished a round for this much longer than its pause is stalled: the process is not ready."""

_VERIFY_SECONDS = 1.0
_FORGET_SECONDS = 60.0
_COMPACT_SECONDS = 600.0
_COMPACT_GAP_SECONDS = 0.1
_FORGET_KEYS = 10_000
_LONGEST_BACK_OFF = 5.0

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
            pause = max(self.pause, min(self.pause * 2.0 ** min(self._failures, 10), _LONGEST_BACK_OFF))
            _log.error("background task failed", extra={"task": self.name, "again_in": pause}, exc_info=error)
            return pause
        else:
            if self._unusable is not None:
                _log.info("store usable again", extra={"task": self.name, "after": self._unusable})
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
    """Sum the hours that are old enough into days, and delete the days that are too old; `now` in Unix seconds."""
    today = Granularity.DAY.start(now)
    hours_before = today - settings.usage_hours_days * DAY
    days_before = today - settings.usage_days_days * DAY
    while await usage.compact(hours_before, days_before):  # noqa: ASYNC110 - a pause between two days
        await asyncio.sleep(_COMPACT_GAP_SECONDS)


def background_tasks(
    settings: Settings, backend: Backend, confirm: Callable[[bool], None], clock: Callable[[], float]
) -> list[BackgroundTask]:
    """The tasks of a process that serves requests; `confirm` gets what the store says of access, changed or not.

    `clock` gives Unix seconds.
    """

    async def forget() -> None:
        backend.limiter.forget()
        await backend.store.orders.forget(clock() - KEY_LIFETIME, _FORGET_KEYS)

    return [
        BackgroundTask("check limits", backend.limiter.check),
        BackgroundTask("watch access", lambda: backend.watch_access(confirm)),
        BackgroundTask("verify the store", backend.store.verify, _VERIFY_SECONDS),
        BackgroundTask("save usage", backend.save),
        BackgroundTask("forget", forget, _FORGET_SECONDS),
        BackgroundTask(
            "compact usage history", lambda: compact_history(backend.store.usage, settings, clock()), _COMPACT_SECONDS
        ),
    ]
