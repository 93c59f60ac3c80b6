"""Identifiers: those that only the service assigns, and those that some programs read wrongly (D20, D22)."""

from pathlib import Path
from typing import Any

import pytest

from petstore_server.domain.orders import INT64_MAX, MAX_ASSIGNED_ID
from testing.cli import CommandLine, Done

FROM_1000 = {"PETSTORE_ASSIGNED_IDS_FROM": "1000"}


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    """Orders below and from 1,000 on, of which the last has the largest identifier."""
    file = tmp_path / "orders.csv"
    file.write_text(f"id,quantity\n1,1\n999,1\n1000,1\n5000,1\n{INT64_MAX},1\n")
    return file


def imported(cli: CommandLine, file: Path, *options: str, **settings: str) -> Done:
    return cli("orders", "import", str(file), *options, "--json", **settings)


def counts(result: dict[str, Any]) -> tuple[int, int, int, int]:
    return result["created"], result["unchanged"], result["replaced"], result["rejected"]


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_an_import_creates_nothing_under_reserved_identifiers_unless_they_are_moved(
    cli: CommandLine, file: Path, dry_run: tuple[str, ...]
) -> None:
    refused = imported(cli, file, *dry_run, **FROM_1000)
    assert (3, (2, 0, 0, 3)) == (refused.code, counts(refused.json()))
    [reason] = {line.partition(": ")[2] for line in refused.json()["reasons"]}
    assert "give --assigned to import such rows" in reason
    moved = imported(cli, file, "--assigned", *dry_run, **FROM_1000)
    assert (0, (5, 0, 0, 0) if dry_run else (3, 2, 0, 0)) == (moved.code, counts(moved.json()))
    for options in ((), ("--assigned",)):
        again = imported(cli, file, *options, *dry_run, **({} if dry_run else FROM_1000))
        assert (0, (5, 0, 0, 0) if dry_run else (0, 5, 0, 0)) == (again.code, counts(again.json()))


def test_orders_that_exist_under_reserved_identifiers_are_replaced_as_any(cli: CommandLine, file: Path) -> None:
    imported(cli, file)
    file.write_text("id,quantity\n5000,2\n")
    assert (0, 0, 1, 0) == counts(imported(cli, file, **FROM_1000).json())


@pytest.mark.parametrize("number", ["1", "0", "-5", "9007199254740992", "1.5", "1e3", "01000"])
def test_a_wrong_first_identifier_is_refused(cli: CommandLine, number: str) -> None:
    cli("orders", "list", PETSTORE_ASSIGNED_IDS_FROM=number).fails(
        2, "PETSTORE_ASSIGNED_IDS_FROM", "a whole number from 2 to 9007199254740991"
    )


def test_a_large_identifier_and_quantity_are_named_in_the_result_of_an_import(cli: CommandLine, file: Path) -> None:
    rows = [MAX_ASSIGNED_ID, MAX_ASSIGNED_ID + 1, INT64_MAX - 1, INT64_MAX]
    file.write_text("id,quantity\n" + "".join(f"{row},{2**31 - 2 + place}\n" for place, row in enumerate(rows)))
    warnings = [
        f"3 identifiers are above {MAX_ASSIGNED_ID}; programs in JavaScript read them wrongly.",
        f"2 quantities are above {2**31 - 1}; generated programs in Go and Java cannot read lists with them.",
    ]
    for options in (("--dry-run",), (), ()):
        assert warnings == imported(cli, file, *options).json()["warnings"]
    assert "\n".join(warnings) in cli("orders", "import", str(file)).err
    file.write_text(f"id,quantity\n{MAX_ASSIGNED_ID},{2**31 - 1}\n")
    assert "warnings" not in imported(cli, file).json()
    file.write_text(f"id,quantity\n{2**60},many\n")
    assert "warnings" not in imported(cli, file).json()  # of a rejected row
