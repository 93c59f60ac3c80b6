"""No command writes over a store, its log or a backup, and over any other file only with --force."""

import errno
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from petstore_server.cli import orders
from petstore_server.domain.errors import Conflict
from petstore_server.operations import orders as operations
from petstore_server.partial_files import partial_file
from petstore_server.store import Store
from testing.cli import CommandLine
from testing.engines import PostgresEngine
from testing.process import petstore_bytes, serving
from testing.stores import Stores

WRITERS = [
    ["orders", "import", "-", "--force", "--rejects"],
    ["orders", "import", "-", "--rejects"],
    ["pets", "import", "-", "--force", "--rejects"],
    ["orders", "export", "--force", "--format", "jsonl"],
    ["db", "backup"],
]


@pytest.fixture(name="cli")
def _cli(tmp_path: Path) -> CommandLine:
    """A store with an order, next to which are a backup, links, and a store with a log in use."""
    cli = CommandLine(tmp_path / "orders.db")
    cli.must("orders", "import", "-", stdin='{"id":1}\n')
    cli.must("db", "backup", str(tmp_path / "backup.db"))
    (tmp_path / "link").symlink_to(cli.store)
    (tmp_path / "hard").hardlink_to(cli.store)
    (tmp_path / "linked-backup").symlink_to(tmp_path / "backup.db")
    return cli


NAMES = ["orders.db", "link", "hard", "backup.db", "linked-backup"]
NAMES += [f"{name}{end}" for name in ("orders.db", "backup.db") for end in ("-wal", "-shm", "-journal")]


@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_a_store_its_log_and_a_backup_are_never_written_over(cli: CommandLine, command: list[str]) -> None:
    before = {file.name: file.read_bytes() for file in cli.store.parent.iterdir()}
    for name in NAMES:
        done = cli(*command, str(cli.store.with_name(name)), stdin='{"id":2}\nbad\n')
        assert (6, "", True) == (done.code, done.out, "choose another name" in done.err), name
        assert before == {file.name: file.read_bytes() for file in cli.store.parent.iterdir()}, name


def test_the_log_of_a_store_in_use_keeps_an_acknowledged_change(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    cli = CommandLine(store)
    cli.must("orders", "import", "-", stdin='{"id":1}\n')
    with serving(store) as server:
        cli.must("orders", "cancel", "1")
        for name in ("orders.db-wal", "orders.db-shm"):
            (tmp_path / f"hard{name}").hardlink_to(tmp_path / name)
            (tmp_path / f"soft{name}").symlink_to(tmp_path / name)
            copied = tmp_path / f"copy{name}"
            copied.write_bytes((tmp_path / name).read_bytes())
            with (tmp_path / name).open("rb") as opened:
                descriptor = Path(f"/proc/self/fd/{opened.fileno()}")
                for file in (tmp_path / name, tmp_path / f"hard{name}", tmp_path / f"soft{name}", copied, descriptor):
                    refused = cli("orders", "import", "-", "--force", "--rejects", str(file), stdin="bad")
                    assert (6, True) == (refused.code, "choose another name" in refused.err), file
                    assert 6 == cli("orders", "export", "--force", "--format", "jsonl", str(file)).code, file
        server.kill()
    assert "cancelled" == cli.must("orders", "show", "1", "--json").json()["status"]


def test_the_place_of_a_missing_store_is_not_taken_by_another_file(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "orders.db", make=False)
    for name in ("orders.db", "orders.db-wal"):
        assert 6 == cli("orders", "import", "-", "--rejects", str(tmp_path / name), stdin="bad").code
        assert 6 == cli("orders", "export", str(tmp_path / name), "--format", "jsonl").code
    assert [] == list(tmp_path.iterdir())


def test_a_journal_of_sqlite_and_a_dump_of_postgresql_are_not_written_over(
    cli: CommandLine, postgres: PostgresEngine, postgres_stores: Stores, tmp_path: Path
) -> None:
    writer = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
    writer.execute("PRAGMA cache_size = 1")
    writer.execute("CREATE TABLE one (two)")
    writer.execute("INSERT INTO one VALUES (zeroblob(1000000))")
    writer.execute("BEGIN")
    writer.execute("UPDATE one SET two = zeroblob(900000)")  # more than its cache holds, so the journal is written
    journal = tmp_path / "copied-journal"
    journal.write_bytes((tmp_path / "other.db-journal").read_bytes())
    writer.close()
    for kind in ("custom", "plain", "tar"):
        postgres.tool("pg_dump", f"--format={kind}", f"--file={tmp_path / kind}", postgres_stores.url)
    for file in (journal, tmp_path / "custom", tmp_path / "plain", tmp_path / "tar"):
        before = file.read_bytes()
        assert 6 == cli("orders", "export", "--force", str(file), "--format", "jsonl").code
        assert before == file.read_bytes()


def test_rejects_go_to_a_stream(cli: CommandLine) -> None:
    rejects = ("--rejects", "/dev/stdout", "--format", "jsonl")
    done = petstore_bytes(cli.store, "orders", "import", "/dev/stdin", *rejects)
    assert 0 == done.returncode, done.stderr


def test_hard_links_of_an_empty_log_and_of_a_damaged_store_are_recognised(cli: CommandLine, tmp_path: Path) -> None:
    wal = tmp_path / "orders.db-wal"
    wal.touch()
    cli.store.write_bytes(b"\0" * 8192)
    for number, file in enumerate((wal, cli.store)):
        linked = tmp_path / f"linked{number}"
        linked.hardlink_to(file)
        assert 6 == cli("orders", "import", "-", "--force", "--rejects", str(linked), stdin="bad").code
    assert (b"", b"\0" * 8192) == (wal.read_bytes(), cli.store.read_bytes())


def test_an_export_does_not_replace_a_backup_that_is_made_while_it_is_written(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, exported = tmp_path / "new.db", operations.export_orders

    async def slow(store: Store, file_format: str) -> AsyncIterator[tuple[bytes, int]]:
        async for part in exported(store, file_format):
            yield part
        target.write_bytes((tmp_path / "backup.db").read_bytes())

    monkeypatch.setattr(orders, "export_orders", slow)
    cli("orders", "export", "--force", "--format", "jsonl", str(target)).fails(6, "is a backup")
    assert (tmp_path / "backup.db").read_bytes() == target.read_bytes()


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def without_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", without_links)
    target = tmp_path / "orders.jsonl"
    for content in ("first", "second"):
        with partial_file(target) as partial:
            with partial.create("w") as file:
                file.write(content)
            with nullcontext() if content == "first" else pytest.raises(Conflict):
                partial.put_in_place(replace=False)
    assert ("first", [target]) == (target.read_text(), list(tmp_path.iterdir()))
