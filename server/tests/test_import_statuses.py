"""Statuses in the words of shops, and columns that are filled once an order was cancelled or shipped."""

import json
from pathlib import Path

import pytest

from petstore_server.domain.orders import Status
from petstore_server.imports.options import ReadOptions
from testing.cases import for_all
from testing.cli import CommandLine
from testing.import_files import read
from testing.messages import options_of

EXPORTS = Path(__file__).parent / "data" / "exports"


def statuses(content: str, file_format: str, **options: object) -> list[Status]:
    found = read(content.encode(), ReadOptions(file_format, **options))  # type: ignore[arg-type]
    assert [] == found.rejects
    return [order.status for order in found.orders]


def stored(cli: CommandLine) -> dict[int, str]:
    return {each["id"]: each["status"] for each in cli.must("orders", "list", "--json").json_lines()}


def test_each_unknown_status_is_named_with_its_rows_and_the_option_to_give(cli: CommandLine) -> None:
    file = EXPORTS / "19-status.csv"
    rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
    rejected = cli("orders", "import", str(file)).err
    unknown = dict.fromkeys(word for _, word in rows if word.strip().lower() not in (*Status, "canceled", ""))
    assert len(unknown) == len([line for line in rejected.splitlines() if "status '" in line])
    for word in unknown:
        count = [each for _, each in rows].count(word)
        assert f"status '{word}' is none of pending, shipped, cancelled; give --map-status" in rejected
        assert count == 1 or f"{count} rows: status '{word}'" in rejected
    assert {1: "pending", 2: "shipped", 3: "cancelled", 4: "cancelled", 5: "cancelled"}.items() <= stored(cli).items()


def test_the_options_that_are_named_lead_to_the_statuses(cli: CommandLine) -> None:
    rows = "id,status\n1,Fulfilled\n2,unfulfilled\n3,on-hold\n4,refunded\n5,voided\n6,fulfilled\n7,\n"
    rejected = cli("orders", "import", "-", "--format", "csv", stdin=rows).err
    options = [option.replace("STATUS", "cancelled") for each in options_of(rejected) for option in each]
    cli.must("orders", "import", "-", "--format", "csv", *options, stdin=rows)
    expected = ["shipped", "pending", "pending", "cancelled", "cancelled", "shipped", "pending"]
    assert expected == [stored(cli)[number] for number in range(1, 8)]


def test_up_to_fifty_values_are_named(cli: CommandLine) -> None:
    rows = "".join(f"{number},word{number % 60}\n" for number in range(120))
    done = cli("orders", "import", "-", "--format", "csv", stdin=f"id,status\n{rows}x,\n").err
    assert 50 == done.count("2 rows: status 'word")
    assert "20 rows for other reasons" in done
    assert "id 'x' is not a whole number" in done


@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_values_are_mapped_in_any_case_and_the_rest_and_empty_ones_by_their_own_options(file_format: str) -> None:
    words = ["Fulfilled", "fulfilled", "PENDING", "other", "", "canceled"]
    content = "id,status\n" + "".join(f"{number},{word}\n" for number, word in enumerate(words))
    if file_format == "jsonl":
        content = "\n".join(json.dumps({"id": number, "status": word}) for number, word in enumerate(words))
    given = (("fulfilled", "shipped"), ("*", "cancelled"), ("", "shipped"))
    expected = ["shipped", "shipped", "pending", "cancelled", "shipped", "cancelled"]
    assert expected == statuses(content, file_format, statuses=given)


MAPPED = (("Cancelled at", "cancelled"), ("Fulfilled at", "shipped"), ("Fulfilled at", "shipDate"), ("State", "status"))


@for_all(
    [
        ("", "", "", "pending"),
        ("2026-12-01T10:00:00Z", "", "", "shipped"),
        ("2026-12-01T10:00:00Z", "yes", "", "cancelled"),
        ("", "2026-12-02", "", "cancelled"),
        ("2026-12-01T10:00:00Z", "2026-12-02", "pending", "pending"),
        ("", "false", "", "pending"),
        ("", "no", "", "pending"),
        ("", "0", "", "pending"),
        ("", " ", "", "pending"),
    ]
)
def test_a_filled_cell_gives_the_status_unless_there_is_one(case: tuple[str, str, str, str]) -> None:
    shipped, cancelled, status, expected = case
    csv = f"id,Fulfilled at,Cancelled at,State\n1,{shipped},{cancelled},{status}\n"
    record = {"id": 1, "Fulfilled at": shipped or None, "Cancelled at": cancelled or None, "State": status or None}
    for content, file_format in ((csv, "csv"), (json.dumps(record), "jsonl"), (json.dumps([record]), "json")):
        assert [expected] == statuses(content, file_format, columns=MAPPED)
        found = read(content.encode(), ReadOptions(file_format, columns=MAPPED))
        assert [shipped or None] == [order.ship_date for order in found.orders]


def test_flags_give_the_status_among_many_plain_rows_as_row_by_row() -> None:
    rows = "".join(f"{number},{'2026-12-01T10:00:00Z' if number % 3 else ''},,\n" for number in range(2_500))
    found = statuses(f"id,Fulfilled at,Cancelled at,State\n{rows}", "csv", columns=MAPPED)
    assert ["shipped" if number % 3 else "pending" for number in range(2_500)] == found


def test_an_order_gets_the_status_of_a_filled_cell(cli: CommandLine) -> None:
    cli.must("orders", "import", "-", stdin='{"id":1,"status":"pending"}')
    cli.must("orders", "import", "-", "--format", "csv", "--map", "sent=shipped", stdin="id,sent\n1,yes\n2,\n")
    assert {1: "shipped", 2: "pending"} == stored(cli)


def test_a_status_that_is_none_is_wrong_usage(cli: CommandLine) -> None:
    for text in ("fulfilled=done", "fulfilled", "=", "*=x"):
        done = cli("orders", "import", "-", "--map-status", text, stdin="")
        assert 2 == done.code
        assert "is not of the form VALUE=STATUS with a STATUS of pending" in " ".join(done.err.split())
