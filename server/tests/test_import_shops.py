"""Exports of shops: each file of `data/shops` is recognised, and what `--shop` stands for can be given as options.

The orders that a person expects of each file are in `transcripts/import-shops.md`.
"""

import shlex
from pathlib import Path

import pytest

from petstore_server.cli.importing import arguments
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.shops import SHOPS, combined, export_of, exports_of
from testing.cli import CommandLine
from testing.documents import ROOT, table
from testing.transcripts import TESTS, sections

FILES = TESTS / "data" / "shops"
PAGE = ROOT / "docs" / "import.md"
COMMANDS = {each.name: shlex.split(each.commands[0]) for each in sections(TESTS / "transcripts" / "import-shops.md")}
OF_SHOPS = {name: command for name, command in COMMANDS.items() if "--shop" in command}


def shop_of(name: str) -> str:
    return OF_SHOPS[name][OF_SHOPS[name].index("--shop") + 1]


def run(cli: CommandLine, name: str, *instead: str) -> list[str]:
    """Run the command for a file, with other options `instead` of --shop; the orders in the store afterwards."""
    _, *given, file = COMMANDS[name]
    at = given.index("--shop")
    options = [*given[:at], *(instead or given[at : at + 2]), *given[at + 2 :]]
    cli(*options, str(FILES / Path(file).name))
    return cli.must("orders", "export", "-").out.splitlines()


def header(name: str) -> list[str]:
    """The columns of a file: of the first line that has any."""
    line = next(line for line in (FILES / name).read_text("utf-8-sig").splitlines() if line.strip(" ,"))
    return [column.strip('"') for column in line.split(max("\t,;", key=line.count))]


def test_each_file_of_the_test_data_has_a_transcript_and_each_export_a_file() -> None:
    assert {path.name for path in FILES.iterdir()} == {*COMMANDS}
    headers = list(map(header, OF_SHOPS))
    for shop in SHOPS:
        exports = exports_of(shop)
        assert exports == [each for each in exports if each in [export_of(shop, names) for names in headers]]
        for export in exports:
            fields = [field for _, field in export.added_to(ReadOptions(), export.header).columns]
            assert len(set(fields)) == len(fields)
            assert "reference" in fields


@pytest.mark.parametrize(("marker", "place"), [("shops", 2), ("others", 1)])
def test_each_command_of_the_page_is_one_of_the_transcripts(marker: str, place: int) -> None:
    commands = [shlex.split(row[place]) for row in table(PAGE, marker)]
    assert all(COMMANDS[name] == [*command, f"shops/{name}"] for *command, name in commands)
    named = {name for *_, name in commands}
    if marker == "shops":
        of_page = [export_of(shop, header(name)) for name in named for shop in [shop_of(name)]]
        assert all(export in of_page for shop in SHOPS for export in exports_of(shop))
    else:
        assert named == COMMANDS.keys() - OF_SHOPS


@pytest.mark.parametrize("name", OF_SHOPS)
def test_a_dry_run_shows_options_that_lead_to_the_same_orders_which_another_import_does_not_change(
    cli: CommandLine, tmp_path: Path, name: str
) -> None:
    done = cli(*OF_SHOPS[name][1:-1], str(FILES / name), "--dry-run")
    [shown] = [line for line in done.err.splitlines() if line.startswith(f"--shop {shop_of(name)} stands for: ")]
    found = run(cli, name)
    assert found
    assert found == run(CommandLine(tmp_path / "other.db"), name, *shlex.split(shown.partition(": ")[2]))
    changes = cli.must("audit", "--json").out
    assert found == run(cli, name)
    assert changes == cli.must("audit", "--json").out


@pytest.mark.parametrize("name", OF_SHOPS)
def test_without_its_option_an_export_is_refused_with_the_option_to_give(cli: CommandLine, name: str) -> None:
    done = cli("orders", "import", str(FILES / name))
    shop = shop_of(name)
    assert f"petstore: This looks like an export of {SHOPS[shop]}'s orders: give --shop {shop}.\n" == done.err


def completed(given: ReadOptions, shop: str, name: str) -> ReadOptions:
    """The given options with those of the shop, for a file of the test data."""
    export = export_of(shop, header(name))
    assert export is not None
    return combined(given, export.added_to(given, header(name)))


@pytest.mark.parametrize("shop", list(SHOPS))
@pytest.mark.parametrize("is_given", [False, True])
def test_lines_above_the_header_of_an_export_are_to_be_left_out(cli: CommandLine, shop: str, is_given: bool) -> None:
    for export in exports_of(shop):
        content = f"Table 1\n\n{','.join(export.header)}\n"
        options = ["--shop", shop] if is_given else []
        refused = cli("orders", "import", "-", "--format", "csv", *options, stdin=content)
        refused.fails(1, "it is line 3 that does; leave out what is above it: (tail -n +3 FILE; echo) |")


def test_an_option_given_as_well_wins_over_that_of_the_shop() -> None:
    given = ReadOptions(columns=(("Id", "id"), ("lineitem SKU", "quantity")), split_lines=False)
    options = completed(given, "shopify", "shopify.csv")
    added = {"Name": "reference", "Cancelled at": "cancelled"}.items()
    assert {*given.columns, *added, ("Fulfilled at", "shipDate"), ("Fulfilled at", "shipped")} == set(options.columns)
    assert (False, ("*",)) == (options.split_lines, options.ignored)
    given = ReadOptions(statuses=(("WC-Completed", "pending"),), ignored=("item_product_id",))
    options = completed(given, "woocommerce", "woocommerce-items.csv")
    assert ["pending"] == [status for text, status in options.statuses if text.lower() == "wc-completed"]
    assert "item_product_id" not in dict(options.columns)


def test_arguments_are_quoted_for_a_shell() -> None:
    options = ReadOptions(columns=(("Name of 'it'", "id"),), ignored=("*",), date_format="%d %m", split_lines=True)
    expected = ["--map", "Name of 'it'=id", "--split-lines", "--date-format", "%d %m", "--ignore-column", "*"]
    assert expected == shlex.split(" ".join(arguments(options)))
