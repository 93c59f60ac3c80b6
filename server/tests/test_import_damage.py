"""Damage of a file that can still be parsed: it is noticed, and costs no order silently."""

import os
import threading
from pathlib import Path

import pytest

from petstore_server.cli.importing import phrased
from petstore_server.imports.files import Source, open_source
from petstore_server.imports.kinds import ORDERS
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.reading import read_batches
from petstore_server.imports.rejects import Rejects
from petstore_server.imports.running import FILE_CHANGED, FileImport
from petstore_server.imports.schema import Schema
from petstore_server.store import Store
from testing.cli import CommandLine
from testing.import_files import Read, batches, collect, read, reason_of
from testing.stores import BY

NOTES = ReadOptions("csv", ignored=("note",))


def piped(content: bytes, options: ReadOptions) -> Read:
    """What is read of a pipe whose writer ends after the content."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        found = collect(batches(pipe, options))
    thread.join()
    return found


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        ("id,quantity\n1,12\n2,12", [1]),
        ("id,quantity\n1,12\n2,12\n", [1, 2]),
        ("id,quantity\n1,12\n2,", [1, 2]),
        ("id,quantity\n1,12\n2", [1]),
        ("id,status\n1,\n2,shipped", [1, 2]),
        ("id,note\n1,\n2,12", [1, 2]),
        ('id,quantity\n1,12\n2,"12"', [1]),
        ('id,note,quantity\n1,,12\n2,"a\nb",12', [1]),
    ],
)
def test_a_last_row_that_may_have_been_cut_off_in_a_pipe_is_rejected(content: str, ids: list[int]) -> None:
    found = piped(content.encode(), NOTES)
    assert ids == [order.id for order in found.orders]
    assert 2 == len(found.orders) + len(found.rejects)


@pytest.mark.parametrize("note", ['"Deluxe\tsize 24"', '"Deluxe"\t24"', '"Deluxe\t"24', '"De\tluxe"\t24'])
def test_quotes_between_tabs_that_do_not_pair_up_in_a_cell_are_text(note: str) -> None:
    """A quote that began a cell, and one that ended another, made one cell of both."""
    content = f"id\tname\tsize\tquantity\n1\t{note}\t3\n2\t\t\t4\n"
    found = read(content.encode(), ReadOptions("csv", ignored=("name", "size")))
    assert [(1, 3), (2, 4)] == [(order.id, order.quantity) for order in found.orders]


def test_a_row_that_was_cut_off_says_so_and_a_whole_file_may_end_without_a_line_end(tmp_path: Path) -> None:
    content = b"id,quantity\n1,12\n2,12"
    [rejected] = piped(content, NOTES).rejects
    problem = "The file ends within this row: it may have been cut off"
    assert f"{problem}; import the whole file, or end its last line if it is whole." == reason_of(rejected)
    file = tmp_path / "orders.csv"
    file.write_bytes(content)
    with open_source(str(file)) as source:
        found = collect(read_batches(source, Schema(ORDERS, NOTES)))
    assert [1, 2] == [order.id for order in found.orders]


@pytest.mark.anyio
async def test_a_file_that_changes_while_it_is_read_is_reported(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("id,note,quantity\n" + "".join(f"{number},{'x' * 500},1\n" for number in range(8_000)))
    with open_source(str(file)) as source:
        rejects = Rejects(phrase=phrased)
        run = FileImport(ORDERS, source, NOTES, rejects)
        count = 0
        async for _ in run.run(store, lambda: BY):
            count += 1
            if count == 1:
                with file.open("a") as more:
                    more.write("8000,,1")
    assert FILE_CHANGED == run.doubt
    assert 1 == rejects.count, "the last row, which is being written"
    record = await store.imports.find(run.import_id)
    assert ("failed", FILE_CHANGED) == (record.state, record.error)


def test_the_command_ends_with_exit_code_3_if_the_file_changed(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "has_changed", lambda _: True)
    done = cli("orders", "import", "-", stdin='{"id":1}\n')
    assert (3, True) == (done.code, "The file was changed while it was read" in done.err)
    assert cli("orders", "import", "-", "--json", stdin='{"id":1}\n').json()["fileChanged"]
