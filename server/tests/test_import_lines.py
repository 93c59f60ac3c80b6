"""Orders of several lines: each line is an order of its own, by `--split-lines`."""

import json

import pytest

from petstore_server.imports import files, lines
from petstore_server.imports.options import ReadOptions
from testing.cli import CommandLine
from testing.import_files import read


def stored(cli: CommandLine) -> list[tuple[object, ...]]:
    listed = cli.must("orders", "list", "--json").json_lines()
    names = ("id", "reference", "petId", "quantity", "status")
    return [tuple(order.get(name) for name in names) for order in listed]


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_a_later_line_has_its_own_values_and_else_those_of_the_first_and_a_rejected_one_counts(
    monkeypatch: pytest.MonkeyPatch, file_format: str, rows: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    content = "id,quantity,status,account\n1,1,shipped,acme\n2,1,,\n1,x,,acme\n1,3,pending,acme\n1,4,,\n2,,,\n"
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
        (None, None, 4, "pending"),
        (None, "2/2", None, "pending"),
    ] == [(order.account, order.reference, order.quantity, order.status) for order in found.orders]
    assert ["quantity"] == [reject.column for reject in found.rejects]


def test_lines_that_are_too_far_apart_are_rejected(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", 1)
    monkeypatch.setattr(lines.OrderLines.ended, "__defaults__", (2,))
    rows = "reference,quantity\nA,1\nB,1\nA,2\nC,1\nD,1\nA,3\nA,4\n"
    done = cli("orders", "import", "-", "--format", "csv", "--split-lines", stdin=rows).err
    assert "5 created, 0 unchanged, 0 replaced, 2 rejected" in done
    assert "2 rows: Order A is also in line 2; sort the file by order: at most 10,000 orders are between" in done
    assert [1, 1, 1, 1, 2] == sorted(each[3] for each in stored(cli))  # type: ignore[type-var]
