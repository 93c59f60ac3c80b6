"""Run a coroutine until it first suspends: one that never suspends needs no task, and its result is there at once."""

import asyncio
from collections.abc import Callable, Coroutine
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
    rest = _finish(_Rest(work, waited_for), late)
    rest.send(None)  # a task that is cancelled before its first step runs nothing of a coroutine that has not begun
    return asyncio.get_running_loop().create_task(rest)


async def _finish(rest: "_Rest", late: Callable[[Any], None]) -> None:
    try:
        outcome = await rest
    except Exception as error:  # noqa: BLE001 - `late` gets it
        outcome = error
    late(outcome)


class _Rest:
    """The rest of a coroutine that was started and waits for `waited_for`, or for its next turn if that is None."""

    def __init__(self, work: Coroutine[Any, Any, Any], waited_for: "asyncio.Future[Any] | None") -> None:
        self._work = work
        self._first = [waited_for, None]  # from the end: None for `run_eagerly`, then what the task waits for

    def __await__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._first.pop() if self._first else self._work.send(None)

    def throw(self, error: BaseException) -> Any:
        # A cancellation before the first step goes to what is waited for, as later ones do, and comes back from it.
        if self._first and (waited_for := self._first.pop()) is not None and waited_for.cancel():
            return waited_for
        return self._work.throw(error)
