"""Background tasks: no error ends one, and one that makes no progress is reported."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.runtime.background import STALLED_SECONDS, BackgroundTask, run_tasks
from testing.clock import Clock
from testing.public_server import until


class Work:
    """Work that raises the given errors, one for each round but for None, and then succeeds."""

    def __init__(self, *errors: Exception | None) -> None:
        self.rounds = 0
        self._errors = list(errors)

    async def __call__(self) -> None:
        self.rounds += 1
        if self._errors and (error := self._errors.pop(0)):
            raise error


async def run_until(tasks: list[BackgroundTask], truth: Callable[[], bool]) -> None:
    running = asyncio.create_task(run_tasks(tasks))
    await until(truth)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_error_is_logged_and_the_work_is_tried_again_later_each_time_until_a_success(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = Work(OSError("broken pipe"), RuntimeError("a defect"), ValueError("another"), None, OSError("again"))
    other = Work()
    tasks = [BackgroundTask("fails", failing, 0.001), BackgroundTask("other", other, 0.001)]
    await run_until(tasks, lambda: failing.rounds >= 6 and other.rounds >= 6)
    logged = [each.__dict__ for each in caplog.records]
    found = [(each["levelname"], each["msg"], each["task"], each["retry_in_seconds"]) for each in logged]
    pauses = (0.002, 0.004, 0.008, 0.002)
    assert [("ERROR", "background task failed", "fails", pause) for pause in pauses] == found
    assert all(each["exc_info"] for each in logged)


async def test_the_pauses_grow_to_five_seconds_and_are_never_shorter_than_the_usual_one() -> None:
    for pause, expected in ((0.5, [1.0, 2.0, 4.0, 5.0, 5.0]), (60.0, [60.0, 60.0])):
        task = BackgroundTask("fails", Work(*[OSError("broken pipe")] * 5), pause)
        assert expected == [await task._round() for _ in expected]


async def test_an_unusable_store_is_logged_once_when_it_begins_and_once_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "petstore_server")
    work = Work(*[ServiceUnavailable("the disk is full")] * 2, ServiceUnavailable("it is locked"))
    await run_until([BackgroundTask("save usage", work, 0.001)], lambda: work.rounds >= 6)
    assert [
        ("ERROR", "store unusable", "save usage", "the disk is full"),
        ("INFO", "store usable again", "save usage", "it is locked"),
    ] == [(each.levelname, each.msg, each.__dict__["task"], each.__dict__["reason"]) for each in caplog.records]


@pytest.mark.parametrize(("fails", "state"), [(False, "has not finished"), (True, "fails")])
async def test_work_that_hangs_or_always_fails_is_reported_as_stalled_until_it_finishes(
    fails: bool, state: str
) -> None:
    clock, gate, rounds = Clock(100.0), asyncio.Event(), list[None]()

    async def work() -> None:
        rounds.append(None)
        if not gate.is_set() and fails:
            raise RuntimeError("a defect")
        await gate.wait()

    task = BackgroundTask("watch access", work, 0.001, clock)
    assert task.stalled() is None
    running = asyncio.create_task(task.run())
    await until(lambda: bool(rounds))
    clock.now += STALLED_SECONDS
    assert task.stalled() is None
    clock.now += 0.001
    assert task.stalled() == f"the background task 'watch access' {state} for 10 seconds; the log says more"
    gate.set()
    await until(lambda: task.stalled() is None)
    running.cancel()
