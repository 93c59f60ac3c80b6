"""A coroutine that is started without a task ends as it would in one, whatever it waits for."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from petstore_server.server.eager import run_eagerly


class Failed(Exception):
    pass


async def no_wait() -> str:
    return "done"


async def sleep() -> str:
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    return "done"


async def result_of_a_future() -> str:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "done")
    return await future


async def recovery_from_a_failed_future() -> str:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_exception, Failed())
    try:
        return await future
    except Failed:
        await asyncio.sleep(0)
        return "done"


def never(_: object) -> None:
    raise AssertionError


async def timeout_after_the_first_wait() -> str:
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    except TimeoutError:
        return "done"
    raise AssertionError


WORK = [no_wait, sleep, result_of_a_future, recovery_from_a_failed_future, timeout_after_the_first_wait]


@pytest.mark.parametrize("work", WORK)
async def test_the_result_is_that_of_the_coroutine(work: Callable[[], Coroutine[Any, Any, str]]) -> None:
    late: list[object] = []
    outcome = run_eagerly(work(), late.append)
    assert isinstance(outcome, str) == (work is no_wait)
    if isinstance(outcome, asyncio.Task):
        await outcome
    assert ["done"] == (late or [outcome])


async def test_an_error_is_raised_at_once_or_given_late() -> None:
    async def fail(wait: bool) -> str:
        if wait:
            await asyncio.sleep(0)
        raise Failed

    late: list[object] = []
    task = run_eagerly(fail(True), late.append)
    assert isinstance(task, asyncio.Task)
    await task
    assert [Failed] == [*map(type, late)]
    with pytest.raises(Failed):
        run_eagerly(fail(False), late.append)


async def test_a_late_result_does_not_wait_for_what_became_ready_after_it() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    order: list[object] = []

    async def wait() -> str:
        return await future

    task = run_eagerly(wait(), order.append)
    await asyncio.sleep(0)
    future.set_result("done")
    asyncio.get_running_loop().call_soon(order.append, "later")
    assert isinstance(task, asyncio.Task)
    await task
    assert ["done", "later"] == order


CANCELLED_WAITS = [asyncio.Event().wait, partial(asyncio.sleep, 0), partial(asyncio.sleep, 60)]


@pytest.mark.parametrize("begun", [True, False], ids=["after its first step", "before its first step"])
@pytest.mark.parametrize("first", [True, False], ids=["first wait", "later wait"])
async def test_a_cancellation_reaches_the_coroutine(first: bool, begun: bool) -> None:
    cleaned: list[str] = []

    async def wait() -> None:
        try:
            if not first:
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("done")

    task = run_eagerly(wait(), never)
    assert isinstance(task, asyncio.Task)
    if begun:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ["done"] == cleaned


@pytest.mark.parametrize("wait", CANCELLED_WAITS)
async def test_a_cancellation_before_the_first_step_can_be_caught(wait: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async def recover() -> str:
        try:
            await wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "done"
        raise AssertionError

    late: list[object] = []
    task = run_eagerly(recover(), late.append)
    assert isinstance(task, asyncio.Task)
    task.cancel()
    await task
    assert ["done"] == late


@pytest.mark.parametrize("finished", [True, False])
async def test_a_cancellation_before_the_first_step_cancels_what_is_waited_for(finished: bool) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def wait() -> str:
        return await future

    task = run_eagerly(wait(), never)
    assert isinstance(task, asyncio.Task)
    if finished:
        future.set_result("done")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.cancelled() == (not finished)
