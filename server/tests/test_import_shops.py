"""Exports of shops: each file of `data/shops` is recognised, and `--shop` leads to the orders that a person expects."""

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from petstore_server.cli.importing import arguments
from petstore_server.imports.options import ReadOptions, plain_name
from petstore_server.imports.shops import SHOPS, combined, export_of, exports_of, recognized
from testing.cli import CommandLine
from testing.documents import ROOT, table

FILES = Path(__file__).parent / "data" / "shops"
SHIPPED, CANCELLED = "shipped", "cancelled"


class Expected(NamedTuple):
    """What importing a file of this shop leads to: orders as fields without their identifiers, and rejected lines.

    `rejected` has a part of the reason for each line; `options` are needed in addition to --shop.
    """

    shop: str
    orders: list[dict[str, Any]]
    options: tuple[str, ...] = ()
    rejected: dict[int, str] = {}  # noqa: RUF012 - not changed


def order(
    reference: str, pet: int | None = None, quantity: int | None = None, status: str = "pending", date: str = ""
) -> dict[str, Any]:
    """An order without its identifier, and without the fields that have no value."""
    fields = {"petId": pet, "quantity": quantity, "shipDate": date or None, "status": status, "reference": reference}
    return {name: value for name, value in fields.items() if value is not None}


NEW_YORK = ("--timezone", "America/New_York")
OUTCOMES = {
    "shopify.csv": Expected(
        "shopify",
        [
            order("#1001", 501, 2, SHIPPED, "2026-09-04T13:00:00Z"),
            order("#1001/2", 502, 1, SHIPPED, "2026-09-04T13:00:00Z"),
            order("#1002", 503, 1, CANCELLED),
            order("#1003", 503, 3),
        ],
    ),
    "shopify-every-line.csv": Expected(
        "shopify",
        [
            order("#1001", 501, 1),
            order("#1001/2", 502, 4),
            order("#1002", 503, 2),
            order("#1003", 504, 1, CANCELLED),
        ],
    ),
    "shopify-text-skus.csv": Expected(
        "shopify",
        [
            order("#2001", None, 2, SHIPPED, "2026-10-02T06:30:00Z"),
            order("#2001/2", None, 1, SHIPPED, "2026-10-02T06:30:00Z"),
            order("#2002", None, 1, CANCELLED),
        ],
        ("--ignore-column", "Lineitem sku"),
    ),
    "woocommerce-items.csv": Expected(
        "woocommerce",
        [
            order("5012", 41, 2, SHIPPED),
            order("5012/2", 44, 1, SHIPPED),
            order("5013", 41, 1),
            order("5014", 41, 1),
        ],
        rejected={6: "wc-refunded"},
    ),
    "woocommerce-items-full.csv": Expected(
        "woocommerce",
        [
            order("6001", 41, 2, SHIPPED),
            order("6001/2", 44, 1, SHIPPED),
            order("6002", 41, 1),
            order("6003", 41, 1, CANCELLED),
        ],
        rejected={8: "failed"},
    ),
    "woocommerce-orders.csv": Expected("woocommerce", [order("7001", status=SHIPPED), order("7002")]),
    "woocommerce-suite.csv": Expected("woocommerce", [order("7101"), order("7102", status=SHIPPED)]),
    "woocommerce-analytics.csv": Expected(
        "woocommerce", [order("8001", quantity=3, status=SHIPPED), order("8002", quantity=1)]
    ),
    "woocommerce-advanced.csv": Expected(
        "woocommerce", [order("9001", 41, 2, SHIPPED), order("9001/2", 44, 1, SHIPPED), order("9002", 41, 1)]
    ),
    "magento.csv": Expected(
        "magento",
        [order("000000101", status=SHIPPED), order("000000102"), order("000000103", status=CANCELLED)],
    ),
    "magento-full.csv": Expected(
        "magento",
        [order("000000201", status=SHIPPED), order("000000202"), order("000000203", status=CANCELLED)],
        rejected={5: "Closed"},
    ),
    "amazon-unshipped.txt": Expected(
        "amazon",
        [
            order("52336476957402", quantity=1),
            order("52336476957410", quantity=2),
            order("59686379847882", quantity=1),
        ],
        ("--ignore-column", "sku"),
    ),
    "amazon-all-orders.txt": Expected(
        "amazon",
        [
            order("111-0000001-0000001", 501, 2, SHIPPED),
            order("111-0000001-0000001/2", 502, 1, SHIPPED),
            order("111-0000002-0000002", 503, 1),
            order("111-0000003-0000003", 503, 0, CANCELLED),
        ],
    ),
    "etsy-items.csv": Expected(
        "etsy",
        [
            order("3000000001", 953074300, 2, SHIPPED, "2026-10-06T04:00:00Z"),
            order("3000000001/2", 953074301, 1, SHIPPED, "2026-10-06T04:00:00Z"),
            order("3000000002", 953074300, 1),
        ],
        NEW_YORK,
    ),
    "etsy-orders.csv": Expected(
        "etsy",
        [order("3000000001", None, 3, SHIPPED, "2026-10-06T04:00:00Z"), order("3000000002", None, 1)],
        NEW_YORK,
    ),
    "ebay.csv": Expected(
        "ebay",
        [
            order("24-10000-00001", 318508625049, 1, SHIPPED, "2026-10-06T04:00:00Z"),
            order("24-10000-00002", 318508625050, 2),
        ],
        NEW_YORK,
        {6: "has 1 cell", 7: "has 1 cell"},
    ),
    "ebay-items.csv": Expected(
        "ebay",
        [
            order("10082000000001", 318508625049, 1, SHIPPED, "2026-09-28T04:00:00Z"),
            order("10082000000002", 318508625050, 2, SHIPPED, "2026-09-29T04:00:00Z"),
            order("10082000000003", 318508625051, 1),
        ],
        (*NEW_YORK, "--map", "Transaction ID=reference"),
        {5: "'id' is missing", 9: "has 3 cells", 10: "has 1 cell"},
    ),
    "ebay-german.csv": Expected(
        "ebay",
        [
            order("23-12345-12345", 318508625049, 1, SHIPPED, "2025-12-10T23:00:00Z"),
            order("23-12345-12346", 318508625050, 2),
        ],
        ("--timezone", "Europe/Berlin"),
        rejected={6: "has 1 cell", 7: "has 1 cell"},
    ),
    "square.csv": Expected("square", [order("SQC3z", quantity=2)], ("--ignore-column", "SKU"), {3: "Refund"}),
    "square-full.csv": Expected(
        "square",
        [order("SQ1aB", 601, 1), order("SQ1aB/2", 602, 2), order("SQ2cD", 601, 1)],
        rejected={5: "Refund"},
    ),
}

PAGE = ROOT / "docs" / "import.md"
COMMANDS = [row[2] for row in table(PAGE, "shops")]
OTHER_COMMANDS = [row[1] for row in table(PAGE, "others")]
OTHERS: dict[str, list[dict[str, Any]]] = {
    "excel-german.csv": [
        {"id": 1001, "petId": 266, "quantity": 1, "shipDate": "2026-11-30T23:00:00Z", "complete": False},
        {"id": 1002, "petId": 65, "quantity": 12, "shipDate": "2026-12-02T13:00:00Z", "complete": True},
        {"id": 1003, "petId": 28, "quantity": 1000},
    ],
    "online-retail.csv": [
        {"reference": "536365", "petId": 85123, "quantity": 6},
        {"reference": "536365/2", "petId": 71053, "quantity": 6},
        {"reference": "C536379", "petId": 22423, "quantity": -1},
        {"reference": "536414", "petId": 22139, "quantity": 56},
    ],
    "olist.csv": [
        {"reference": "e481f51cbdc54678b7cc49136f2d6af7", "status": SHIPPED, "shipDate": "2017-10-04T22:55:00Z"},
        {"reference": "53cdb2fc8bc7dce0b6741e2150273451", "status": CANCELLED},
    ],
    "odoo.csv": [{"reference": "S00021", "quantity": 2}],
}
"""What the files of no known shop become with the commands of the page."""


def header(file: Path) -> list[str]:
    """The columns of a file: of the first line that has any."""
    line = next(line for line in file.read_text("utf-8-sig").splitlines() if line.strip(" ,"))
    delimiter = max("\t,;", key=line.count)
    return [name.strip('"') for name in line.split(delimiter)]


def stored(cli: CommandLine) -> list[dict[str, Any]]:
    """All orders, without their identifiers and whether they are complete."""
    orders = [dict(each) for each in cli.must("orders", "export", "-").json_lines()]
    return [{name: each[name] for name in each if name not in ("id", "complete")} for each in orders]


def test_each_file_of_the_test_data_has_an_outcome_and_each_shop_a_file() -> None:
    assert {path.name for path in FILES.iterdir()} == {*OUTCOMES, *OTHERS}
    assert [shlex.split(command)[-1] for command in OTHER_COMMANDS] == list(OTHERS)
    assert {each.shop for each in OUTCOMES.values()} == set(SHOPS)


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_file_is_recognised_by_its_header(name: str) -> None:
    assert OUTCOMES[name].shop == recognized(header(FILES / name))


def test_each_export_has_a_file_a_source_and_maps_no_field_twice() -> None:
    headers = [{plain_name(column) for column in header(FILES / name)} for name in OUTCOMES]
    for shop in SHOPS:
        for export in exports_of(shop):
            assert any({plain_name(column) for column in export.header} <= each for each in headers), export.header
            fields = [field for column, field in export.options.columns if column in export.header]
            assert len(set(fields)) == len(fields), export.header
            assert "reference" in fields, export.header


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_export_of_a_shop_is_imported_with_its_option(cli: CommandLine, name: str, tmp_path: Path) -> None:
    expected, rejects = OUTCOMES[name], tmp_path / "rejects.jsonl"
    command = ("orders", "import", str(FILES / name), "--shop", expected.shop, *expected.options)
    done = cli(*command, "--rejects", str(rejects))
    assert (3 if expected.rejected else 0) == done.code, done.err
    assert expected.orders == stored(cli)
    rejected = {each["line"]: each["reason"] for each in map(json.loads, rejects.read_text("utf-8").splitlines())}
    assert rejected.keys() == expected.rejected.keys()
    assert all(part in rejected[line] for line, part in expected.rejected.items()), rejected
    again = cli(*command, "--json").json()
    assert (len(expected.orders), 0, 0) == (again["unchanged"], again["created"], again["replaced"])


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_dry_run_shows_options_that_lead_to_the_same_orders(cli: CommandLine, name: str) -> None:
    expected = OUTCOMES[name]
    command = ("orders", "import", str(FILES / name))
    done = cli(*command, "--shop", expected.shop, *expected.options, "--dry-run")
    [shown] = [line for line in done.err.splitlines() if line.startswith(f"--shop {expected.shop} stands for: ")]
    assert "" == cli.must("orders", "list", "--json").out
    cli(*command, *shlex.split(shown.partition(": ")[2]), *expected.options)
    assert expected.orders == stored(cli)


@pytest.mark.parametrize("name", OUTCOMES)
def test_without_its_option_an_export_is_refused_with_the_option_to_give(cli: CommandLine, name: str) -> None:
    shop = OUTCOMES[name].shop
    done = cli("orders", "import", str(FILES / name))
    assert 1 == done.code
    title = SHOPS[shop]
    assert f"This looks like an export of {title}'s orders: give --shop {shop}" in " ".join(done.err.split())
    assert "" == cli.must("orders", "list", "--json").out


def completed(given: ReadOptions, shop: str, name: str) -> ReadOptions:
    """The given options with those of the shop, for a file of the test data."""
    export = export_of(shop, header(FILES / name))
    assert export is not None
    return combined(given, export.added_to(given, header(FILES / name)))


def test_an_option_given_as_well_wins_over_that_of_the_shop() -> None:
    given = ReadOptions(columns=(("Id", "id"), ("lineitem SKU", "quantity")), split_lines=False)
    options = completed(given, "shopify", "shopify.csv")
    assert {
        ("Id", "id"),
        ("lineitem SKU", "quantity"),
        ("Name", "reference"),
        ("Fulfilled at", "shipDate"),
        ("Fulfilled at", "shipped"),
        ("Cancelled at", "cancelled"),
    } == set(options.columns)
    assert (False, ("*",)) == (options.split_lines, options.ignored)
    given = ReadOptions(statuses=(("WC-Completed", "pending"),), ignored=("item_product_id",))
    options = completed(given, "woocommerce", "woocommerce-items.csv")
    assert ["pending"] == [status for text, status in options.statuses if text.lower() == "wc-completed"]
    assert "item_product_id" not in dict(options.columns)


def test_the_identifiers_of_a_shop_can_be_those_of_its_orders(cli: CommandLine) -> None:
    cli("orders", "import", str(FILES / "woocommerce-items.csv"), "--shop", "woocommerce", "--map", "order_id=id")
    assert "5013" == cli.must("orders", "show", "5013", "--json").json()["reference"]


def test_a_status_of_a_shop_without_a_counterpart_is_settled_by_the_option_that_is_named(cli: CommandLine) -> None:
    command = ("orders", "import", str(FILES / "woocommerce-items.csv"), "--shop", "woocommerce")
    assert "--map-status wc-refunded=" in cli(*command).err
    cli.must(*command, "--map-status", "wc-refunded=cancelled")
    assert order("5015", 41, 1, CANCELLED) in stored(cli)


def test_an_order_of_ebay_is_imported_by_the_row_that_sums_it_up_or_by_its_items(cli: CommandLine) -> None:
    command = ("orders", "import", str(FILES / "ebay-items.csv"), "--shop", "ebay", *NEW_YORK)
    done = cli(*command)
    assert [order("24-20000-00002", None, 3)] == stored(cli)[1:]
    assert "2 rows: Order 24-20000-00002 is also in line 5; that row sums up the items of the order; " in done.err
    assert "give --map 'Transaction ID=reference' to make each item an order, first in line 6" in done.err


def test_further_rows_of_an_order_of_ebay_in_german_are_not_to_be_counted_too(cli: CommandLine, tmp_path: Path) -> None:
    lines = (FILES / "ebay-german.csv").read_text("utf-8").splitlines(keepends=True)
    file = tmp_path / "ebay.csv"
    file.write_text("".join([*lines[:4], lines[3].replace('"2"', '"1"', 1), *lines[4:]]), "utf-8")
    done = cli("orders", "import", str(file), "--shop", "ebay", "--timezone", "Europe/Berlin")
    assert "Order 23-12345-12346 is also in line 4; that row sums up the items of the order.\n" in done.err
    assert "--split-lines" not in done.err


def test_a_file_of_another_kind_is_refused_with_what_to_do(cli: CommandLine, tmp_path: Path) -> None:
    done = cli("orders", "import", str(FILES / "etsy-items.csv"), "--shop", "shopify")
    assert "This looks like an export of Etsy's orders: give --shop etsy" in " ".join(done.err.split())
    file = tmp_path / "orders.csv"
    file.write_text("number,animals\n1,2\n")
    done = cli("orders", "import", str(file), "--shop", "square")
    assert 1 == done.code
    assert "not an export of Square's orders" in " ".join(done.err.split())
    file.with_suffix(".jsonl").write_text('{"id": 1}\n')
    done = cli("orders", "import", str(file.with_suffix(".jsonl")), "--shop", "square")
    assert 1 == done.code
    assert "CSV" in done.err


def test_arguments_are_quoted_for_a_shell() -> None:
    options = ReadOptions(columns=(("Name of 'it'", "id"),), ignored=("*",), date_format="%d %m", split_lines=True)
    assert [
        "--map",
        "Name of 'it'=id",
        "--split-lines",
        "--date-format",
        "%d %m",
        "--ignore-column",
        "*",
    ] == shlex.split(" ".join(arguments(options)))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_page_for_shops_imports_its_file(cli: CommandLine, command: str) -> None:
    program, *arguments, name = shlex.split(command)
    assert "petstore" == program
    done = cli(*arguments, str(FILES / name))
    assert (3 if OUTCOMES[name].rejected else 0) == done.code, done.err
    assert OUTCOMES[name].orders == stored(cli)


@pytest.mark.parametrize("command", OTHER_COMMANDS)
def test_each_command_of_the_page_for_other_files_imports_its_file(cli: CommandLine, command: str) -> None:
    _, *arguments, name = shlex.split(command)
    done = cli(*arguments, str(FILES / name))
    rejected = {"excel-german.csv": 1, "odoo.csv": 2}.get(name, 0)
    assert f"{len(OTHERS[name])} created, 0 unchanged, 0 replaced, {rejected} rejected" in done.err
    orders = cli.must("orders", "export", "-").json_lines()
    assert len(OTHERS[name]) == len(orders)
    for expected, found in zip(OTHERS[name], orders, strict=True):
        assert ({"status": "pending"} | expected).items() <= found.items()


def test_the_page_for_shops_has_a_command_for_each_shop_and_each_export() -> None:
    named = {shlex.split(command)[-1] for command in COMMANDS}
    assert set(SHOPS) == {OUTCOMES[name].shop for name in named}
    headers = [{plain_name(column) for column in header(FILES / name)} for name in named]
    for shop in SHOPS:
        for export in exports_of(shop):
            assert any({plain_name(column) for column in export.header} <= each for each in headers), export.header
