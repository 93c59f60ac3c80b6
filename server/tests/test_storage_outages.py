"""What becomes of requests when the store fails, and that service recovers when the cause goes."""

import asyncio
import errno
import os
import resource
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import apsw
import pytest

from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.errors import ServiceUnavailable, StoreUnusable
from petstore_server.domain.keys import Environment
from petstore_server.domain.lists import Filters, PageQuery, Sort
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.placements import Placement
from petstore_server.engines.sqlite import checkpoints, connections, maintenance
from petstore_server.engines.sqlite.checkpoints import Checkpoints
from petstore_server.engines.sqlite.engine import SqliteEngine
from petstore_server.engines.sqlite.maintenance import backup, check, restore
from petstore_server.store import Store
from petstore_server.store.search import SHORT_PAGE
from petstore_server.store.statements import Query, Work
from testing.stores import BY, Stores, batches, opened, reason, records_of
from testing.subprocesses import PATIENCE


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """No file may grow beyond what the largest of the store's has now; the kernel then fails the writing."""
    largest = max(file.stat().st_size for file in path.parent.iterdir())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_an_error_of_a_file_is_reported_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, words in (
        (OSError(errno.ENFILE, "Too many"), "the limit on open files is reached"),
        (OSError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError("odd"), "odd"),
        (apsw.CantOpenError("x"), "its file, or the log files next to it, cannot be opened"),
        (apsw.SQLError("no such table: x"), "SQLite reports no such table: x"),
    ):
        assert words == connections.plain_words(error)
    monkeypatch.setattr(os, "open", Mock(side_effect=OSError(errno.EMFILE, "Too many")))
    assert "the limit on open files is reached" == connections.plain_words(apsw.CantOpenError("x"))


async def refused(store: Store, order_ids: range) -> list[ServiceUnavailable]:
    """Cancel orders all at once; every one must be refused."""
    responses = await asyncio.gather(
        *(store.orders.change(order_id, CANCEL, BY) for order_id in order_ids), return_exceptions=True
    )
    assert {ServiceUnavailable} == {type(response) for response in responses}
    return [response for response in responses if isinstance(response, ServiceUnavailable)]


@pytest.fixture(name="connections_made")
def _connections_made(monkeypatch: pytest.MonkeyPatch) -> list[apsw.Connection]:
    """The connections to SQLite that are made during the test."""
    made: list[apsw.Connection] = []
    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, made.append])
    return made


async def test_a_restore_on_a_full_disk_leaves_no_incomplete_copy_of_the_store(tmp_path: Path) -> None:
    path, backups = tmp_path / "store.db", tmp_path / "backups"
    backups.mkdir()
    async with opened(path) as store:
        backup(path, backups / "copy.db")
        (backups / "other").write_bytes(bytes(1_000_000))
        await store.orders.import_batch([Order(number, number) for number in range(20_000)], "import:1", BY)
    assert path.stat().st_size > 1_000_000
    with full_disk(backups / "copy.db"), pytest.raises(StoreUnusable):
        restore(path, backups / "copy.db", BY)
    assert {"store.db", "backups"} == {file.name for file in path.parent.iterdir()}
    assert [] == check(path)


async def test_a_restore_that_fills_the_disk_while_it_writes_leaves_no_copy_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(file: Path, *flags: int) -> apsw.Connection:
        connection = connections.connect_writer(file, *flags)
        if file == path:
            connection.execute("PRAGMA max_page_count = 1")  # it cannot grow
        return connection

    path, backups = tmp_path / "store.db", tmp_path / "backups"
    backups.mkdir()
    async with opened(path) as store:
        await store.orders.import_batch([Order(number, number) for number in range(2_000)], "import:1", BY)
        backup(path, backups / "copy.db")
    path.unlink()
    async with opened(path):
        monkeypatch.setattr(maintenance, "connect_writer", connect)
    with pytest.raises(StoreUnusable, match=r"the disk is full\. Free some space"):
        restore(path, backups / "copy.db", BY)
    assert {"store.db", "backups"} == {file.name for file in path.parent.iterdir()}
    assert [] == check(path)


async def test_the_store_is_unusable_while_only_the_rest_of_the_log_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "store.db") as store:
        await store.check()
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=0, f_bavail=63, f_frsize=4096))
        assert "the disk is full" in await reason(store.check())
        monkeypatch.undo()
        await store.check()


@pytest.mark.parametrize("listed", [False, True])
async def test_a_closed_store_is_unavailable(listed: bool, store: Store) -> None:
    if listed:
        await store.listing.current()
    await store.close()
    for asked in (
        store.listing.current(),
        store.orders.change(1, CANCEL, BY),
        store.orders.find(1),
        store.search.page(PageQuery(Filters(), Sort())),
        store.search.page(PageQuery(Filters(complete=True), Sort())),
        store.orders.place(Placement(1, "key", 1, 1, None), BY),
        store.keys.principal(b"", Environment.PRODUCTION, 1.0),
        store.keys.list(),
        store.access_version(),
        store.check(),
    ):
        assert "closed" in await reason(asked)


async def test_what_may_take_long_to_read_does_not_hold_up_others(
    file_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reads it on a thread."""
    async with file_store.opened() as store:
        await store.orders.import_batch([Order(1, 1)], "import:1", BY)
        await store.orders.import_batch([Order(1, 2)], "import:2", BY)
        at_once: list[str] = []
        monkeypatch.setattr(store.engine, "peek", lambda sql, parameters: at_once.append(sql))
        for read in (
            store.accounts.list(),
            store.audit.count(AuditFilters()),
            store.imports.of_order(1),
            store.imports.rejects("import:1"),
            store.imports.states(2, 1),
            store.keys.banned_accounts(1.0),
            store.orders.find_many([1, 2]),
            store.orders.placed([1]),
            store.pets.find_many([1, 2]),
            store.search.count(Filters(), 1),
            store.search.count_by_status(),
            store.search.page(PageQuery(Filters(), Sort(), SHORT_PAGE + 1)),
            store.usage.all(),
            store.usage.users(0.0),
        ):
            await read
        assert 1 == len(await batches(store, "import:2"))
    assert [] == at_once


async def test_a_change_waits_for_the_log_to_be_copied_only_where_that_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_copy, copy = threading.Event(), Checkpoints._copy

    def copy_late(log: Checkpoints) -> None:
        assert may_copy.wait(PATIENCE)
        copy(log)

    monkeypatch.setattr(checkpoints, "LOG_PAGES", 1)
    monkeypatch.setattr(checkpoints, "MAX_LOG_PAGES", 60)
    monkeypatch.setattr(Checkpoints, "_copy", copy_late)
    async with opened(tmp_path / "store.db") as store:
        log = cast(SqliteEngine, store.engine)._checkpoints
        for number in range(5):
            await store.orders.import_batch([Order(number)], "import:1", BY)
        assert 0 == log._copied
        while log._pages < checkpoints.MAX_LOG_PAGES:
            await store.orders.import_batch([Order(1_000)], "import:1", BY)
        waiting = asyncio.create_task(store.orders.import_batch([Order(1_001)], "import:1", BY))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        may_copy.set()
        await waiting
        assert log._copied <= log._pages < checkpoints.MAX_LOG_PAGES / 2, "the log begins anew"


async def test_a_log_that_cannot_be_copied_holds_up_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOG_PAGES", 1)
    monkeypatch.setattr(checkpoints, "MAX_LOG_PAGES", 1)
    async with opened(tmp_path / "store.db") as store:
        cast(SqliteEngine, store.engine)._checkpoints._connection.close()
        await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
        assert Status.CANCELLED == (await store.orders.change(1, CANCEL, BY)).status
    async with opened(tmp_path / "store.db") as store:
        assert Status.CANCELLED == (await store.search.find(1)).status


async def test_reads_share_a_connection_and_the_threads_of_a_store_end_with_it(
    tmp_path: Path, connections_made: list[apsw.Connection]
) -> None:
    threads: list[threading.Thread] = []

    def note_thread(items: Sequence[int] = ()) -> Work[Sequence[int]]:
        threads.append(threading.current_thread())
        yield Query("SELECT 1")
        return items

    async with opened(tmp_path / "store.db") as store:
        await store.keys.list()
        made = len(connections_made)
        await store.engine.read(note_thread)
        await store.engine.transaction(note_thread)
        assert 7 == await store.engine.submit(note_thread, 7, 0)
        assert (made, 0) == (len(connections_made), store.engine.stats.old_primaries())
    assert ["petstore-read", "petstore-write", "MainThread"] == [thread.name.partition("_")[0] for thread in threads]
    assert [False, False, True] == [thread.is_alive() for thread in threads]


async def test_closing_finishes_what_is_queued_and_the_list_that_is_being_read(store: Store) -> None:
    await store.orders.import_batch([Order(number) for number in range(5_000)], "import:1", BY)
    reading = asyncio.create_task(store.listing.current())
    changes = [asyncio.create_task(store.orders.change(number, CANCEL, BY)) for number in range(100)]
    await asyncio.sleep(0)
    await store.close()
    assert {Status.CANCELLED} == {(await change).status for change in changes}
    assert 5_000 == records_of(await reading).count(b"id")


async def test_a_caller_who_goes_away_does_not_disturb_the_others(store: Store) -> None:
    await store.orders.import_batch([Order(number) for number in range(10)], "import:1", BY)
    changes = [asyncio.create_task(store.orders.change(number, CANCEL, BY)) for number in range(10)]
    await asyncio.sleep(0)
    changes[3].cancel()
    responses = await asyncio.gather(*changes, return_exceptions=True)
    assert 9 == sum(isinstance(response, Order) for response in responses)
    assert (await store.orders.find(3)).status is Status.CANCELLED  # its change was under way
