"""Background tasks: no error ends one, and one that makes no progress is reported."""

import asyncio
import io
import json
from collections.abc import Callable

import pytest

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.runtime.backend import STALLED_SECONDS, BackgroundTask, run_tasks
from petstore_server.telemetry.logs import configure_logging
from testing.clock import Clock

pytestmark = pytest.mark.anyio


@pytest.fixture(name="log")
def _log() -> io.StringIO:
    stream = io.StringIO()
    configure_logging("info", stream)
    return stream


def entries(log: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


class Work:
    """Work that raises the given errors, one for each round but for None, and then succeeds."""

    def __init__(self, *errors: Exception | None) -> None:
        self.rounds = 0
        self._errors = list(errors)

    async def __call__(self) -> None:
        self.rounds += 1
        if self._errors and (error := self._errors.pop(0)):
            raise error


async def until(truth: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not truth():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


async def run_until(tasks: list[BackgroundTask], truth: Callable[[], bool]) -> None:
    running = asyncio.create_task(run_tasks(tasks))
    await until(truth)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_error_is_logged_and_the_work_is_tried_again_later_each_time(log: io.StringIO) -> None:
    failing = Work(OSError("broken pipe"), RuntimeError("a defect"), ValueError("another"))
    other = Work()
    tasks = [BackgroundTask("fails", failing, 0.001), BackgroundTask("other", other, 0.001)]
    await run_until(tasks, lambda: failing.rounds == 5 and other.rounds >= 5)
    logged = [(entry["event"], entry["task"], entry["retry_in_seconds"]) for entry in entries(log)]
    assert [("background task failed", "fails", 0.001 * 2**failures) for failures in (1, 2, 3)] == logged
    assert all("Traceback" in str(entry["exception"]) for entry in entries(log))


async def test_after_a_success_the_pauses_begin_anew(log: io.StringIO) -> None:
    failing = Work(OSError("broken pipe"), OSError("broken pipe"), None, OSError("broken pipe"))
    await run_until([BackgroundTask("fails", failing, 0.001)], lambda: failing.rounds == 5)
    assert [0.002, 0.004, 0.002] == [entry["retry_in_seconds"] for entry in entries(log)]


async def test_the_pauses_grow_to_five_seconds_and_are_never_shorter_than_the_usual_one(log: io.StringIO) -> None:
    for pause, expected in ((0.5, [1.0, 2.0, 4.0, 5.0, 5.0]), (60.0, [60.0, 60.0])):
        task = BackgroundTask("fails", Work(*[OSError("broken pipe")] * 5), pause)
        assert expected == [await task._round() for _ in expected]


async def test_an_unusable_store_is_logged_once_when_it_begins_and_once_when_it_ends(log: io.StringIO) -> None:
    work = Work(*[ServiceUnavailable("the disk is full")] * 3)
    await run_until([BackgroundTask("save usage", work, 0.001)], lambda: work.rounds == 6)
    assert [("store unusable", "error"), ("store usable again", "info")] == [
        (entry["event"], entry["level"]) for entry in entries(log)
    ]


async def test_work_that_hangs_is_reported_as_stalled_until_it_finishes() -> None:
    clock, gate, begun = Clock(100.0), asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await gate.wait()

    task = BackgroundTask("watch access", hang, 0.001, clock)
    assert task.stalled() is None
    running = asyncio.create_task(task.run())
    await begun.wait()
    assert task.stalled() is None
    clock.now += STALLED_SECONDS + 1
    assert "'watch access' has not finished for 11 seconds" in str(task.stalled())
    gate.set()
    await until(lambda: task.stalled() is None)
    running.cancel()


async def test_work_that_always_fails_is_reported_as_stalled(log: io.StringIO) -> None:
    clock = Clock(100.0)
    work = Work(*[RuntimeError("a defect")] * 3)
    task = BackgroundTask("save usage", work, 0.001, clock)
    running = asyncio.create_task(task.run())
    await until(lambda: work.rounds == 3)
    clock.now += STALLED_SECONDS + 1
    assert "'save usage' fails for 11 seconds" in str(task.stalled())
    await until(lambda: task.stalled() is None)
    running.cancel()
