"""Run a coroutine until it first waits: one that never waits needs no task, and its result is there at once."""

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_eagerly(work: Coroutine[Any, Any, Result]) -> "Result | asyncio.Task[Result]":
    """Run `work` until it ends or waits; return its result, or the task that goes on with it.

    Until `work` first waits it runs outside of a task, so it must not use `asyncio.timeout` before that.
    """
    try:
        waited_for = work.send(None)
    except StopIteration as finished:
        result: Result = finished.value
        return result
    return asyncio.get_running_loop().create_task(_resume(work, waited_for))


@coroutine
def _resume(work: Coroutine[Any, Any, Result], waited_for: Any) -> Generator[Any, Any, Result]:
    """Go on with a coroutine that has been started and waits."""
    while True:
        try:
            yield waited_for
            break
        except BaseException as error:  # noqa: BLE001 - what it waited for has failed, or it is cancelled
            try:
                waited_for = work.throw(error)
            except StopIteration as finished:
                result: Result = finished.value
                return result
    return (yield from work.__await__())
