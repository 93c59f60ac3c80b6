"""How the methods of version 2 are written once for both clients."""

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Concatenate, ParamSpec, Protocol, cast

from petstore_client._admission import Session
from petstore_client._effects import Effects, T

P = ParamSpec("P")


class Runner(Protocol):
    """A client that runs the effects of `_operations`, blocking."""

    _core: Any

    def _session(self) -> Session: ...
    def _run(self, effects: Effects[T], key: str = "") -> T: ...
    def _iterate(self, effects: Effects[None]) -> Generator[Any, None, None]: ...


def awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same method for an AsyncClient, whose calls return awaitables."""

    @functools.wraps(method)
    async def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Any:
        return await cast(Any, method)(self, *arguments, **options)

    return call


def iterated(
    method: Callable[Concatenate[Any, P], Generator[T, None, None]],
) -> Callable[Concatenate[Any, P], AsyncGenerator[T, None]]:
    """The same method for an AsyncClient, whose iterations are asynchronous."""
    return cast(Any, method)  # type: ignore[no-any-return]
