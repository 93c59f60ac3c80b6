"""A coroutine that is started without a task ends as it would in one, whatever it waits for."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from petstore_server.server.eager import run_eagerly


class Failed(Exception):
    pass


def never(_: object) -> None:
    raise AssertionError


def started(work: Coroutine[Any, Any, Any], late: Callable[[Any], None] = never) -> "asyncio.Task[None]":
    """The task that goes on with work that has to wait."""
    task = run_eagerly(work, late)
    assert isinstance(task, asyncio.Task)
    return task


async def wait_for_a_result() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


async def wait_for_a_failure() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_exception, Failed())
    await future


async def forever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("first", [partial(asyncio.sleep, 0), wait_for_a_result, wait_for_a_failure])
async def test_the_result_is_that_of_the_coroutine(first: Callable[[], Awaitable[None]]) -> None:
    async def work() -> str:
        with suppress(Failed):
            await first()
        await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await forever()
        return "done"

    late: list[object] = []
    await started(work(), late.append)
    assert ["done"] == late


@pytest.mark.parametrize("waits", [True, False])
async def test_an_error_or_a_result_is_there_at_once_or_given_late(waits: bool) -> None:
    async def work(error: type[Exception] | None) -> str:
        if waits:
            await asyncio.sleep(0)
        if error is not None:
            raise error
        return "done"

    if waits:
        late: list[object] = []
        await started(work(Failed), late.append)
        assert [Failed] == [*map(type, late)]
    else:
        assert "done" == run_eagerly(work(None), never)
        with pytest.raises(Failed):
            run_eagerly(work(Failed), never)


async def test_a_late_result_does_not_wait_for_what_became_ready_after_it() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    order: list[object] = []

    async def wait() -> str:
        return await future

    task = started(wait(), order.append)
    await asyncio.sleep(0)
    future.set_result("done")
    asyncio.get_running_loop().call_soon(order.append, "later")
    await task
    assert ["done", "later"] == order


@pytest.mark.parametrize("begun", [True, False], ids=["after its first step", "before its first step"])
@pytest.mark.parametrize("wait", [forever, partial(asyncio.sleep, 0), partial(asyncio.sleep, 60)])
async def test_a_cancellation_reaches_the_coroutine_which_may_go_on(
    wait: Callable[[], Awaitable[Any]], begun: bool
) -> None:
    async def recover() -> str:
        try:
            await wait()
            await forever()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "done"
        raise AssertionError

    late: list[object] = []
    task = started(recover(), late.append)
    if begun:
        await asyncio.sleep(0.01)
    task.cancel()
    await task
    assert ["done"] == late


@pytest.mark.parametrize("finished", [True, False])
async def test_a_cancellation_before_the_first_step_cancels_what_is_waited_for(finished: bool) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def wait() -> str:
        return await future

    task = started(wait())
    if finished:
        future.set_result("done")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.cancelled() == (not finished)
