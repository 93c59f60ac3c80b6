"""Orders of several lines: each line is an order of its own, by `--split-lines`."""

import json
from pathlib import Path

import pytest

from petstore_server.imports import files, lines
from petstore_server.imports.options import ReadOptions
from testing.cli import CommandLine
from testing.import_files import read
from testing.messages import options_of

EXPORTS = Path(__file__).parent / "data" / "exports"


def stored(cli: CommandLine) -> list[tuple[object, ...]]:
    listed = cli.must("orders", "list", "--json").json_lines()
    names = ("id", "reference", "petId", "quantity", "status")
    return [tuple(order.get(name) for name in names) for order in listed]


def test_obeying_the_message_makes_each_line_an_order_and_changes_nothing_of_the_first(cli: CommandLine) -> None:
    file = str(EXPORTS / "23-lines.csv")
    refused = cli("orders", "import", file).err
    assert "Order 7 is also in line 2; an order here has one animal; give --split-lines to make each line" in refused
    [option] = options_of(refused)
    assert "2 created, 2 unchanged, 0 replaced, 0 rejected" in cli.must("orders", "import", file, *option).err
    expected = [
        (7, None, 1, 2, "pending"),
        (8, None, 1, 1, "shipped"),
        (9, "7/2", 2, 5, "pending"),
        (10, "8/2", 2, 4, "shipped"),
    ]
    assert expected == stored(cli)
    audit = cli.must("audit", "--json").out
    assert "0 created, 4 unchanged" in cli.must("orders", "import", file, *option).err
    assert (expected, audit) == (stored(cli), cli.must("audit", "--json").out)


SHOPIFY = [
    *("--map", "Name=reference", "--map", "Lineitem sku=petId", "--map", "Lineitem quantity=quantity"),
    *("--map", "Cancelled at=cancelled", "--map", "Fulfilled at=shipped", "--map", "Fulfilled at=shipDate"),
    *("--ignore-column", "*", "--split-lines"),
]


def test_both_articles_of_an_order_of_shopify_are_kept_with_what_its_first_line_says(cli: CommandLine) -> None:
    content = (EXPORTS / "01-shopify.csv").read_text().replace(" -0400", "-04:00")
    cli.must("orders", "import", "-", "--format", "csv", *SHOPIFY, stdin=content)
    assert [
        ("#1001", 501, 2, "shipped"),
        ("#1001/2", 502, 1, "shipped"),
        ("#1002", 503, 1, "cancelled"),
        ("#1003", 503, 3, "pending"),
    ] == sorted(each[1:] for each in stored(cli))
    shipped = [order.get("shipDate") for order in cli.must("orders", "list", "--json").json_lines()]
    assert 2 == shipped.count("2026-09-04T13:00:00Z")


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


def test_a_line_without_an_article_does_not_have_that_of_the_first_line() -> None:
    content = b"reference,petId,quantity,shipDate,status\nA,501,2,2026-12-01T10:00:00Z,shipped\nA,,1,,\n"
    first, gift = read(content, ReadOptions("csv", split_lines=True)).orders
    assert (501, 2) == (first.pet_id, first.quantity)
    assert (None, 1) == (gift.pet_id, gift.quantity)
    assert (first.ship_date, first.status) == (gift.ship_date, gift.status)


def test_lines_that_are_too_far_apart_are_rejected(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", 1)
    monkeypatch.setattr(lines.OrderLines.ended, "__defaults__", (2,))
    rows = "reference,quantity\nA,1\nB,1\nA,2\nC,1\nD,1\nA,3\nA,4\n"
    done = cli("orders", "import", "-", "--format", "csv", "--split-lines", stdin=rows).err
    assert "5 created, 0 unchanged, 0 replaced, 2 rejected" in done
    assert "2 rows: Order A is also in line 2; sort the file by order: at most 10,000 orders are between" in done
    assert [1, 1, 1, 1, 2] == sorted(each[3] for each in stored(cli))  # type: ignore[type-var]


def test_lines_that_the_file_has_no_more_are_named_and_stay(cli: CommandLine) -> None:
    rows = ["id,quantity", "1001,1", "1001,2", "1001,3", "1001,4", "1002,1"]
    cli.must("orders", "import", "-", "--format", "csv", "--split-lines", stdin="\n".join(rows))
    fewer = "\n".join([*rows[:3], rows[-1]])
    for dry in (["--dry-run"], []):
        done = cli.must("orders", "import", "-", "--format", "csv", "--split-lines", *dry, stdin=fewer)
        assert "lines that the file no longer has; they stay as they are: 1001/3, 1001/4." in done.err
    assert 5 == len(stored(cli))
    as_json = cli.must("orders", "import", "-", "--format", "csv", "--split-lines", "--json", stdin=fewer).json()
    assert ["1001/3", "1001/4"] == as_json["left"]
