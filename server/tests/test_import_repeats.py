"""Rows of one order: one file never replaces itself, and by `--split-lines` each line is one order."""

import json
import random

import pytest

from petstore_server.imports import files, lines, seen
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.seen import SeenRows
from testing.cli import CommandLine
from testing.import_files import batches, generated, read
from testing.subprocesses import resident

FORMS = {
    "csv": "id,quantity\n1,1\n2,1\n1,2\n1,1\n2,x\nx,9\n3,y\n3,1\n",
    "jsonl": '{"id":1,"quantity":1}\n{"id":2,"quantity":1}\n{"id":1,"quantity":2}\n{"id":1,"quantity":1}\n'
    '{"id":2,"quantity":"x"}\n{"id":"x"}\n{"id":3,"quantity":"y"}\n{"id":3,"quantity":1}\n',
}
FORMS["json"] = "[" + FORMS["jsonl"].strip().replace("\n", ",\n") + "]"


@pytest.mark.parametrize("rows", [1, 2, 1000])
@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize("file_format", FORMS)
def test_a_row_that_differs_from_an_earlier_one_of_its_order_is_rejected_with_the_line_of_that(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, file_format: str, dry: bool, rows: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    options = ["--format", file_format, *["--dry-run"] * dry]
    done = cli("orders", "import", "-", *options, stdin=FORMS[file_format])
    first = 2 if file_format == "csv" else 1
    assert "2 created, 1 unchanged, 0 replaced, 5 rejected" in done.err
    assert f"2 rows: Order 1 is also in line {first};" in done.err, "also of a row that was rejected"
    again = cli("orders", "import", "-", *options, stdin=FORMS[file_format])
    created = "2 created, 1 unchanged" if dry else "0 created, 3 unchanged"
    assert f"{created}, 0 replaced, 5 rejected" in again.err


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_a_record_that_differs_from_an_earlier_one_on_the_same_line_is_rejected(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """In an array on one line, as programs write it, the last record of an order was the one that was stored."""
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    for name in ('"id":1', '"reference":"A"'):
        content = "[" + ",".join(f'{{{name},"quantity":{number}}}' for number in (1, 2, 1, 3)) + "]"
        done = cli("orders", "import", "-", "--format", "json", stdin=content)
        assert "1 created, 1 unchanged, 0 replaced, 2 rejected" in done.err
        assert " is also in line 1; an order here has one animal; give --split-lines" in done.err
    assert [1, 1] == [order["quantity"] for order in cli.must("orders", "list", "--json").json_lines()]


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_a_later_line_has_its_own_values_and_else_those_of_the_first_and_a_rejected_one_counts(
    monkeypatch: pytest.MonkeyPatch, file_format: str, rows: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    content = "id,quantity,status,account\n1,1,shipped,acme\n2,1,,\n1,x,,acme\n1,3,pending,acme\n1,4,,\n2,,,\n"
    content += "1,5,,zoo\n1,6,,\n"
    if file_format == "jsonl":
        names, *cells = [line.split(",") for line in content.splitlines()]
        records = [
            {name: int(cell) if cell.isdigit() else cell for name, cell in zip(names, row, strict=True) if cell}
            for row in cells
        ]
        content = "\n".join(map(json.dumps, records))
    found = read(content.encode(), ReadOptions(file_format, split_lines=True))
    assert [
        ("acme", None, 1, "shipped"),
        (None, None, 1, "pending"),
        ("acme", "1/3", 3, "pending"),
        ("acme", "1/4", 4, "shipped"),
        (None, "2/2", None, "pending"),
        ("zoo", None, 5, "pending"),
        ("zoo", "1/2", 6, "pending"),
    ] == [(order.account, order.reference, order.quantity, order.status) for order in found.orders]
    assert ["quantity"] == [reject.column for reject in found.rejects]


def test_a_line_that_is_not_in_the_encoding_of_the_file_counts() -> None:
    """The file, read again in its encoding, gave the number of a line to the line before it."""
    content = "reference,quantity,status\nA,1,annulé\nA,2,\nA,3,\n".encode("windows-1252")
    meanings = (("annulé", "cancelled"),)
    for encoding, numbers in ((None, ["A/2", "A/3"]), ("windows-1252", ["A", "A/2", "A/3"])):
        found = read(content, ReadOptions("csv", encoding, statuses=meanings, split_lines=True))
        assert numbers == [order.reference for order in found.orders]


def test_lines_that_are_too_far_apart_are_rejected(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", 1)
    monkeypatch.setattr(lines.OrderLines.ended, "__defaults__", (2,))
    rows = "reference,quantity\nA,1\nB,1\nA,2\nC,1\nD,1\nA,3\nA,4\n"
    done = cli("orders", "import", "-", "--format", "csv", "--split-lines", stdin=rows).err
    assert "5 created, 0 unchanged, 0 replaced, 2 rejected" in done
    assert "2 rows: Order A is also in line 2; sort the file by order: at most 10,000 orders are between" in done
    listed = cli.must("orders", "list", "--json").json_lines()
    assert [1, 1, 1, 1, 2] == sorted(order["quantity"] for order in listed)


def test_rows_are_known_in_any_order_and_beyond_what_is_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "_CACHE_KIB", 64)
    numbers = random.Random(1)
    keys = [numbers.getrandbits(63) - 2**62 for _ in range(20_000)]
    rows = SeenRows()
    for at in range(0, len(keys), 1000):
        assert {} == rows.add(keys[at : at + 1000], range(at, at + 1000))
    assert {0: 7, 2: 19_999} == rows.add([keys[7], 5, keys[19_999]], [20_000, 20_001, 20_002])
    rows.close()


@pytest.mark.parametrize("most", [0, 1500, 10**6])
def test_ascending_keys_are_known_among_others_in_every_order(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(seen, "MAX_ASCENDING", most)
    numbers, rows = random.Random(most), SeenRows()
    first: dict[int, int] = {}
    for batch in range(60):
        start = numbers.randint(0, 200_000) if batch % 3 else 4_000 * batch
        keys = (
            sorted(numbers.sample(range(start, start + 3_000), 100)) if batch % 2 else numbers.sample(range(9_000), 100)
        )
        lines = range(100 * batch, 100 * batch + 100)
        expected = {place: first[key] for place, key in enumerate(keys) if key in first}
        assert expected == rows.add(keys, lines)
        first = {**dict(zip(keys, lines, strict=True)), **first}
    rows.close()


def test_no_room_for_the_rows_of_a_file_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SeenRows()
    rows._database.execute("PRAGMA max_page_count = 4")
    with pytest.raises(OSError, match="No space left on device"):
        rows.add(range(100_000, 0, -1), range(100_000))


def test_the_identifiers_of_a_large_file_are_not_kept_in_memory() -> None:
    """Of 300,000 rows; measured by the process, because SQLite's memory is not Python's."""
    numbers = random.Random(1)
    content = generated(b'{"id":%d}\n' % numbers.getrandbits(60) for _ in range(300_000))
    before = resident()
    assert 300_000 == sum(len(batch.records) for batch in batches(content, ReadOptions("jsonl")))
    assert resident() - before < 24 << 20, "a set of them takes 20 MB"
