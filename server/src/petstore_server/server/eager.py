"""Run a coroutine until it first suspends: one that never suspends needs no task, and its result is there at once."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_eagerly(
    work: Coroutine[Any, Any, Result], late: Callable[[Result | Exception], None]
) -> "Result | asyncio.Task[None]":
    """Run `work` until it ends or suspends; return its result, or the task that goes on with it.

    The task gives the result, or what `work` raised, to `late`. A callback of the task would run after everything that
    is ready when the task ends. `late` is not called if the task is cancelled.

    Until `work` first suspends it runs outside of a task, so it must not use `asyncio.timeout` before that.
    """
    try:
        waited_for = work.send(None)
    except StopIteration as finished:
        result: Result = finished.value
        return result
    rest = _finish(work, waited_for, late)
    rest.send(None)  # a task that is cancelled before its first step runs nothing of a coroutine that has not begun
    return asyncio.get_running_loop().create_task(rest)


async def _finish(
    work: Coroutine[Any, Any, Result],
    waited_for: "asyncio.Future[Any] | None",
    late: Callable[[Result | Exception], None],
) -> None:
    """Go on with a coroutine that has been started and waits for `waited_for`, or for its next turn if that is None."""
    outcome: Result | Exception
    try:
        # Since Python 3.12, `create_task` accepts only what `async def` makes, not the generator itself.
        outcome = await _rest(work, waited_for)
    except Exception as error:  # noqa: BLE001 - `late` gets it
        outcome = error
    late(outcome)


@coroutine
def _rest(
    work: Coroutine[Any, Any, Result], waited_for: "asyncio.Future[Any] | None"
) -> "Generator[asyncio.Future[Any] | None, None, Result]":
    begun = False
    while True:
        try:
            if not begun:
                yield None  # to `run_eagerly`; the first step of the task comes back here
                begun = True
            yield waited_for
            break
        except BaseException as error:  # noqa: BLE001 - what it waited for has failed, or it is cancelled
            # A cancellation before the first step goes to what is waited for, as later ones do, and comes back from it.
            if begun or waited_for is None or not waited_for.cancel():
                try:
                    waited_for = work.throw(error)
                except StopIteration as finished:
                    result: Result = finished.value
                    return result
            begun = True
    return (yield from work.__await__())
