"""`petstore orders`: list, show, ship, complete, cancel, export (D5–D7)."""

import json
from pathlib import Path

import pytest

from testing.cli import CommandLine
from testing.stores import Stores

ORDERS = '{"id":-5,"petId":1}\n{"id":1,"quantity":2}\n{"id":2,"status":"shipped"}\n{"id":3,"status":"cancelled"}\n'


@pytest.fixture
def cli(cli: CommandLine) -> CommandLine:
    cli.must("orders", "import", "-", stdin=ORDERS)
    return cli


def listed(cli: CommandLine, *options: str) -> list[int]:
    """The ids of the orders that the list has with these options."""
    return [order["id"] for order in cli.must("orders", "list", "--json", *options).json_lines()]


def test_orders_are_listed_with_their_status_by_id(cli: CommandLine) -> None:
    lines = cli.must("orders", "list").out.splitlines()
    assert ["ID", "PET", "QUANTITY", "SHIP", "DATE", "COMPLETE", "STATUS", "REFERENCE", "ACCOUNT"] == lines[0].split()
    assert [["-5", "pending"], ["1", "pending"], ["2", "shipped"], ["3", "cancelled"]] == [
        [line.split()[0], line.split()[-3]] for line in lines[1:]
    ]
    orders = cli.must("orders", "list", "--json").json_lines()
    assert {"id": -5, "petId": 1, "status": "pending"} == orders[0]
    assert 4 == len(orders)


@pytest.mark.parametrize("arguments", [["--", "-5"], ["-5"], ["-5", "--json"], ["--json", "-5"]])
def test_a_negative_identifier_can_be_typed_as_it_is(cli: CommandLine, arguments: list[str]) -> None:
    assert "-5" in cli.must("orders", "show", *arguments).out


@pytest.mark.parametrize("text", ["abc", "007", "", "--typo", "-x"])
def test_anything_but_an_identifier_is_wrong_usage(cli: CommandLine, text: str) -> None:
    cli("orders", "cancel", text, "--json").fails(2, "usage")


def test_an_unknown_order_is_not_found(cli: CommandLine) -> None:
    cli("orders", "show", "99").fails(5, "petstore: There is no order 99; list the orders to see which")


def test_several_orders_are_each_tried_and_the_first_failure_is_the_exit_code(cli: CommandLine) -> None:
    done = cli("orders", "ship", "1", "99", "2", "-5", "--json", "--at", "2026-11-20T10:00:00+02:00")
    assert 5 == done.code
    assert [1, -5] == [order["id"] for order in done.json_lines()]
    assert {"shipped"} == {order["status"] for order in done.json_lines()}
    assert {"2026-11-20T08:00:00Z"} == {order["shipDate"] for order in done.json_lines()}
    assert ["order_not_found", "order_already_shipped"] == [json.loads(line)["code"] for line in done.err.splitlines()]
    assert 6 == cli("orders", "ship", "2", "99").code


def test_shipping_sets_the_ship_date_and_completing_needs_it_shipped(cli: CommandLine) -> None:
    assert 6 == cli("orders", "complete", "1").code
    assert "order 1: shipped\n" == cli.must("orders", "ship", "1").out
    assert "order 1: shipped, complete\n" == cli.must("orders", "complete", "1").out
    order = cli.must("orders", "show", "1", "--json").json()
    assert order["shipDate"].endswith("Z")
    assert True is order["complete"]
    cli("orders", "complete", "1", "--json").fails(6, "order_already_complete")


def test_an_order_is_corrected_by_options_and_an_empty_text_removes_a_value(cli: CommandLine) -> None:
    stated = ("--pet-id", "8", "--quantity", "3", "--ship-date", "2026-12-01T10:00:00+02:00", "--reference", "R 1")
    corrected = cli.must("orders", "edit", "1", *stated, "--json").json()
    values = {"petId": 8, "quantity": 3, "shipDate": "2026-12-01T08:00:00Z", "reference": "R 1"}
    assert {"id": 1, "status": "pending", **values}.items() <= corrected.items()
    cli.must("orders", "edit", "1", "--pet-id", "", "--quantity", "", "--ship-date", "", "--reference", "")
    assert not values.keys() & cli.must("orders", "show", "1", "--json").json().keys()
    cli("orders", "edit", "1", "--complete").fails(6, "only a shipped order can be completed")
    cli.must("orders", "ship", "1")
    assert "complete" in cli.must("orders", "edit", "1", "--complete", "--quantity", "4").out
    assert {"quantity": 4, "complete": True}.items() <= cli.must("orders", "show", "1", "--json").json().items()
    assert 2 == cli("orders", "edit", "1").code
    assert 2 == cli("orders", "edit", "1", "--quantity", "1.0").code
    assert 5 == cli("orders", "edit", "99", "--quantity", "1").code


def test_of_a_cancelled_order_only_the_reference_can_be_removed(cli: CommandLine) -> None:
    cli.must("orders", "edit", "1", "--reference", "R 1")
    cli.must("orders", "cancel", "1")
    cli("orders", "edit", "1", "--quantity", "4").fails(6, "can no longer be corrected")
    cli.must("orders", "edit", "1", "--reference", "")
    assert "reference" not in cli.must("orders", "show", "1", "--json").json()


def test_only_a_pending_order_can_be_cancelled(cli: CommandLine) -> None:
    assert "order 1: cancelled\n" == cli.must("orders", "cancel", "1").out
    codes = [cli("orders", "cancel", order_id, "--json").error()["code"] for order_id in ("1", "2")]
    assert ["order_already_cancelled", "order_already_shipped"] == codes


def test_a_duration_ships_relative_to_now_and_other_text_is_refused(cli: CommandLine) -> None:
    cli.must("orders", "ship", "1", "--at", "2d")
    assert 2 == cli("orders", "ship", "--at", "soon", "--", "-5").code
    assert 2 == cli("orders", "ship").code


def test_the_list_can_be_filtered_and_cut(cli: CommandLine) -> None:
    cli.must("orders", "import", "-", stdin='{"id":4,"petId":1,"status":"shipped"}\n{"id":5,"petId":9}')

    for options, expected in (
        ("--status shipped", [2, 4]),
        ("--status pending --status cancelled", [-5, 1, 3, 5]),
        ("--pet-id 1", [-5, 4]),
        ("--pet-id 1 --status shipped", [4]),
        ("--limit 2", [-5, 1]),
        ("--pet-id 7 --limit 1", []),
    ):
        assert expected == listed(cli, *options.split()), options
    assert 2 == cli("orders", "list", "--status", "lost").code
    assert 2 == cli("orders", "list", "--limit", "0").code
    assert "'1e3' is not a valid whole number." in cli("orders", "list", "--pet-id", "1e3").err
    titles = "ID  PET  QUANTITY  SHIP DATE  COMPLETE  STATUS  REFERENCE  ACCOUNT\n"
    assert titles == cli.must("orders", "list", "--pet-id", "7").out


def test_orders_are_found_by_the_numbers_of_the_shop(cli: CommandLine, each_backend: Stores) -> None:
    url = {"PETSTORE_DATABASE_URL": each_backend.url}
    records = '{"id":7,"reference":"#1003"}\n{"id":8,"reference":"#1004"}\n{"id":9}\n{"id":10,"reference":"#1003"}'
    cli.must("db", "migrate", **url)
    cli.must("orders", "import", "-", stdin=records, **url)

    def ids(*references: str) -> list[int]:
        options = [option for reference in references for option in ("--reference", reference)]
        return [order["id"] for order in cli.must("orders", "list", "--json", *options, **url).json_lines()]

    assert [7, 10] == ids("#1003")
    assert [7, 8, 10] == ids("#1003", "#1004")
    assert [] == ids("1003")
    assert 2 == cli("orders", "list", "--reference", "", **url).code


@pytest.mark.parametrize(
    ("command", "argument"),
    [(("orders", "show"), "'ID'"), (("orders", "cancel"), "'ID...'"), (("audit", "--order"), "'--order'")],
)
def test_a_number_of_the_shop_is_no_identifier_and_the_command_that_finds_the_order_is_named(
    cli: CommandLine, command: tuple[str, ...], argument: str
) -> None:
    problem = "is not the identifier of an order, which is a whole number of at most 64 bits such as 42"
    step = "if it is the shop's number of the order, `petstore orders list --reference '#1003'` finds it."
    assert f"Invalid value for {argument}: '#1003' {problem}; {step}\n" in cli(*command, "#1003").err
    assert f"Invalid value for {argument}: '' {problem}.\n" in cli(*command, "").err


def test_a_number_that_is_only_a_reference_is_not_found_and_the_command_that_finds_the_order_is_named(
    cli: CommandLine,
) -> None:
    cli.must("orders", "import", "-", stdin='{"id":8,"reference":"5012"}')
    found = "There is no order 5012; `petstore orders list --reference 5012` finds an order by its reference.\n"
    for command in (["show"], ["ship"], ["cancel"], ["complete"], ["edit", "--quantity", "2"]):
        done = cli("orders", *command, "5012")
        assert (5, f"petstore: {found}") == (done.code, done.err)
    assert "There is no order 5013; list the orders" in cli("orders", "cancel", "5013").err
    cli("orders", "show", "5012", "--json").fails(5, "order_not_found")
    assert 0 == cli("orders", "ship", "8").code


def test_the_owner_is_listed_shown_and_filtered_by(cli: CommandLine) -> None:
    cli.must("accounts", "create", "acme", "--plan", "free", "--orders", "own")
    cli.must("orders", "import", "-", stdin='{"id":2,"account":"acme","status":"shipped"}\n{"id":7,"account":"acme"}')

    assert [2, 7] == listed(cli, "--account", "acme")
    assert [-5, 1, 3] == listed(cli, "--account", "-")
    assert "pending  -          acme\n" in cli.must("orders", "list", "--account", "acme").out
    assert "acme" == cli.must("orders", "show", "2", "--json").json()["account"]
    for order_id, account in (("2", "acme"), ("1", "-")):
        assert cli.must("orders", "show", order_id).out.endswith(f"account:    {account}\n")
    cli("orders", "list", "--account", "missing", "--json").fails(5, "account_not_found")


@pytest.mark.parametrize("file_format", ["jsonl", "json", "csv"])
def test_an_export_names_the_owners_and_an_import_of_it_sets_them_again(
    cli: CommandLine, tmp_path: Path, file_format: str
) -> None:
    names = "acme", "Zoo & Söhne's"
    again = CommandLine(tmp_path / "again.db")
    for name in names:
        for store in (cli, again):
            store.must("accounts", "create", name, "--plan", "free", "--orders", "own")
    owned = [{"id": 10 + place, "reference": "PO-1", "account": name} for place, name in enumerate(names)]
    cli.must("orders", "import", "-", stdin=json.dumps(owned))
    file = tmp_path / f"orders.{file_format}"
    cli.must("orders", "export", str(file))
    again.must("orders", "import", str(file))
    orders = cli.must("orders", "list", "--json").out
    assert orders == again.must("orders", "list", "--json").out
    assert [None] * 4 + [*names] == [json.loads(line).get("account") for line in orders.splitlines()]
    assert {"created": 0, "unchanged": 6}.items() <= again.must("orders", "import", str(file), "--json").json().items()


def test_an_export_takes_its_format_from_the_option_else_the_ending(cli: CommandLine, tmp_path: Path) -> None:
    done = cli.must("orders", "export", str(tmp_path / "a.csv"), "--json")
    assert {"file": str(tmp_path / "a.csv"), "exported": 4} == done.json()
    assert (
        "id,petId,quantity,shipDate,complete,status,reference,account\n"
        "-5,1,,,,pending,,\n1,,2,,,pending,,\n2,,,,,shipped,,\n3,,,,,cancelled,,\n" == (tmp_path / "a.csv").read_text()
    )
    for name, options in (("a.txt", ["--format", "jsonl"]), ("a", []), ("a.NDJSON", [])):
        cli.must("orders", "export", str(tmp_path / name), *options)
        assert '{"id":-5,"petId":1,"status":"pending"}' == (tmp_path / name).read_text().splitlines()[0]
    assert 4 == len(json.loads(cli.must("orders", "export", "-", "--format", "json").out))


@pytest.mark.parametrize("name", ["orders.xlsx", "orders.txt", "orders.tsv", "orders.jsonl.gz"])
def test_an_export_to_an_unknown_ending_is_refused(cli: CommandLine, tmp_path: Path, name: str) -> None:
    cli("orders", "export", str(tmp_path / name), "--json").fails(2, "invalid_input", ".csv")
    assert not (tmp_path / name).exists()


def test_an_export_replaces_a_file_only_with_force_and_keeps_it_private(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    file = folder / "orders.jsonl"
    file.write_text("the source of an import")
    cli("orders", "export", str(file), "--json").fails(6, "conflict", "--force")
    cli.store.rename(cli.store.with_suffix(".away"))
    assert 1 == cli("orders", "export", str(file), "--force", PETSTORE_DATABASE_URL=f"sqlite:///{cli.store}").code
    assert "the source of an import" == file.read_text()
    assert [file] == list(folder.iterdir())
    cli.store.with_suffix(".away").rename(cli.store)
    cli.must("orders", "export", str(file), "--force")
    assert 4 == len(file.read_text().splitlines())
    assert 0o600 == file.stat().st_mode & 0o777


def test_an_export_that_cannot_be_written_names_its_file_and_not_a_temporary_one(
    cli: CommandLine, tmp_path: Path
) -> None:
    long = tmp_path / ("a" * 250 + ".csv")  # shorter than the longest name
    cli.must("orders", "export", str(long))
    assert long.exists()
    done = cli("orders", "export", "/proc/orders.csv")  # where no file can be created
    done.fails(1, "petstore: /proc/orders.csv: No such file or directory.\n")


def test_an_import_sets_the_owner_by_any_column_and_keeps_it_without_one(cli: CommandLine) -> None:
    cli.must("accounts", "create", "acme", "--plan", "free")

    def owners(content: str, *options: str) -> dict[int, str | None]:
        cli.must("orders", "import", "-", "--format", "csv", *options, stdin=content)
        return {order["id"]: order.get("account") for order in cli.must("orders", "list", "--json").json_lines()[:3]}

    assert {-5: None, 1: None, 2: None} == owners("id,status,Partner\n2,shipped,acme\n", "--ignore-column", "Partner")
    owned = {-5: None, 1: "acme", 2: "acme"}
    assert owned == owners("id,status,Partner\n1,, acme \n2,shipped,acme\n", "--map", "Partner=account")
    assert owned == owners("id,quantity,account\n1,3,\n")
    assert owned == owners("id,petId,quantity,shipDate,complete,status,reference\n1,9,4,,,,R-1\n2,,,,,shipped,\n")
    cli.must("orders", "import", "-", stdin='{"id":1,"petId":7,"account":null}')
    shown = cli.must("orders", "show", "1", "--json").json()
    assert {"id": 1, "petId": 7, "status": "pending", "account": "acme"} == shown
    changes = cli.must("audit", "--order", "1", "--json").json_lines()
    assert ({}, {"account": "acme"}) == (changes[1]["before"], changes[1]["after"])
