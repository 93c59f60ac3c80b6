"""A store in a file that a command uses without an event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.engines.sqlite.serial import SerialEngine
from petstore_server.runtime.opening import opened_store
from petstore_server.store import Store
from petstore_server.store.engine import run_synchronously
from testing.stores import BY, all_orders, reason, require_store_file, write_locked


def use(path: Path, work: Callable[[Store], Awaitable[Any]]) -> Any:
    """The result of the work on the store, without an event loop."""

    async def run() -> Any:
        async with opened_store(f"sqlite:///{path}", serial=True) as store:
            assert type(store.engine) is SerialEngine
            return await work(store)

    return run_synchronously(run())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a store with two pending orders."""
    require_store_file(tmp_path / "store.db")
    use(tmp_path / "store.db", lambda store: store.orders.import_batch([Order(1), Order(2)], "import:1", BY))
    return tmp_path / "store.db"


async def statuses(store: Store) -> list[Status]:
    return [order.status for order in await all_orders(store)]


def test_a_change_waits_once_for_another_program_that_keeps_the_file_locked(path: Path) -> None:
    waits: list[int] = []

    def give_up(tries: int) -> bool:
        waits.append(tries)
        return False

    async def work(store: Store) -> None:
        assert isinstance(store.engine, SerialEngine)
        store.engine._writing.set_busy_handler(give_up)
        with write_locked(path):
            assert "another program keeps it locked" in await reason(store.orders.change(1, CANCEL, BY))
        assert [0] == waits
        await store.orders.change(2, CANCEL, BY)

    use(path, work)
    assert [Status.PENDING, Status.CANCELLED] == use(path, statuses)


def test_a_closed_store_is_unavailable_and_has_no_log(path: Path) -> None:
    async def itself(store: Store) -> Store:
        return store

    store = use(path, itself)
    for asked in (store.orders.change(1, CANCEL, BY), store.orders.find(1), store.keys.list(), statuses(store)):
        assert run_synchronously(reason(asked)).endswith(" is closed")
    assert [path] == list(path.parent.glob("store.db*"))


def test_what_waits_is_ended_and_needs_an_event_loop() -> None:
    ended: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError) as caught:  # whose traceback keeps the coroutine
        run_synchronously(wait())
    assert ([True], True) == (ended, "event loop" in str(caught.value))
