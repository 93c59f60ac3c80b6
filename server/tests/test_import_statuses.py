"""Statuses in the words of shops, and columns that are filled once an order was cancelled or shipped."""

import json

from petstore_server.domain.orders import Status
from petstore_server.imports.options import ReadOptions
from testing.cases import for_all
from testing.cli import CommandLine
from testing.import_files import read


def statuses(content: str, file_format: str, **options: object) -> list[Status]:
    found = read(content.encode(), ReadOptions(file_format, **options))  # type: ignore[arg-type]
    assert [] == found.rejects
    return [order.status for order in found.orders]


def test_up_to_fifty_values_are_named(cli: CommandLine) -> None:
    rows = "".join(f"{number},word{number % 60}\n" for number in range(120))
    done = cli("orders", "import", "-", "--format", "csv", stdin=f"id,status\n{rows}x,\n").err
    assert 50 == done.count("2 rows: status 'word")
    assert "20 rows for other reasons" in done
    assert "id 'x' is not a whole number" in done


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
