"""What an import says about files that it cannot read as they are: the step that it names, taken literally, works.

`data/exports` has small made-up files of the shapes that shops, ERPs and spreadsheets write.
"""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from testing import needs
from testing.cli import CommandLine, Done
from testing.messages import options_of
from testing.subprocesses import PATIENCE

EXPORTS = Path(__file__).parent / "data" / "exports"
PIPED = re.compile(r"(?P<program>\(echo '[^']*'; cat FILE\)|(?:jq|tail|zcat|bzcat|xzcat|zstdcat|unzip)[^|]* FILE) \| ")
STEP = re.compile(r"petstore orders import -(?P<options>[^.;]*)\.")


def follow(cli: CommandLine, file: Path, message: str) -> Done:
    """Run the commands that a message names."""
    piped, step = PIPED.search(message), STEP.search(message)
    assert piped, message
    assert step, message
    script = piped["program"].replace("FILE", shlex.quote(str(file)))
    content = subprocess.run(["sh", "-c", script], check=True, capture_output=True, timeout=PATIENCE).stdout
    return cli("orders", "import", "-", *shlex.split(step["options"]), stdin=content)


def orders(cli: CommandLine) -> list[dict[str, object]]:
    return [json.loads(line) for line in cli.must("orders", "export", "-").out.splitlines()]


def order(number: int, pet: int, quantity: int, **more: object) -> dict[str, object]:
    return {"id": number, "petId": pet, "quantity": quantity, "status": "pending"} | more


@pytest.mark.parametrize(
    ("name", "problem", "program"),
    [
        ("22-good.csv.gz", "compressed with gzip", "zcat"),
        pytest.param("22-good.csv.bz2", "compressed with bzip2", "bzcat", marks=pytest.mark.system),
        pytest.param("22-good.csv.xz", "compressed with xz", "xzcat", marks=pytest.mark.system),
        pytest.param("22-good.zip", "a zip archive", "unzip", marks=pytest.mark.system),
    ],
)
def test_a_compressed_file_is_imported_by_the_command_that_unpacks_it(
    cli: CommandLine, name: str, problem: str, program: str
) -> None:
    needs.program(program, {"bzcat": "bzip2", "xzcat": "xz-utils"}.get(program))
    refused = cli("orders", "import", str(EXPORTS / name))
    assert problem in refused.err
    assert 0 == follow(cli, EXPORTS / name, refused.err).code
    assert [1, 2] == [each["id"] for each in orders(cli)][:2]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("22-excel-html.xls", "The file is HTML, whatever its name says; open it in a spreadsheet program, and save"),
        ("22-excel.xml", "The file is XML, whatever its name says; open it in a spreadsheet program, and save the"),
        ("22-real.xlsx", "The file is an Excel workbook; save the sheet as CSV in UTF-8."),
        ("22-real.xls", "The file is an Excel workbook; save the sheet as CSV in UTF-8."),
        ("22-real.ods", "The file is an OpenDocument spreadsheet; save the sheet as CSV in UTF-8."),
        ("32-dup-header.csv", "The header names the field 'quantity' twice; rename one of them in the file."),
        (
            "22-good.csv.zst",
            "compressed with Zstandard; unpack it, or pipe it: zstdcat FILE | petstore",
        ),
        ("34-empty.csv", "The file is empty; its first line must name the columns."),
    ],
)
def test_a_file_that_has_to_be_saved_in_another_way_is_refused_with_that_step(
    cli: CommandLine, name: str, problem: str
) -> None:
    assert problem in cli("orders", "import", str(EXPORTS / name)).err


def test_lines_above_the_header_are_left_out_as_the_message_says(cli: CommandLine) -> None:
    file = EXPORTS / "18-numbers.csv"
    refused = cli("orders", "import", str(file))
    assert "it is line 2 that does" in refused.err
    done = follow(cli, file, refused.err)
    assert "line 4: 'id' is missing" in done.err
    assert [order(1001, 266, 1), order(1002, 65, 2)] == orders(cli)


def test_a_row_without_a_header_gets_that_of_an_export(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("1,10,1,,,shipped\n2,11,2,2026-12-01T10:00:00Z,false,\n")
    refused = cli("orders", "import", str(file))
    assert "The first line must name the columns, and it is a row; put a header before it" in refused.err
    assert 0 == follow(cli, file, refused.err).code
    assert [order(1, 10, 1, status="shipped"), "2026-12-01T10:00:00Z"] == [orders(cli)[0], orders(cli)[1]["shipDate"]]
    file.write_text("1,Leash,x\n")
    assert "(echo 'COLUMN,COLUMN,COLUMN'; cat FILE)" in cli("orders", "import", str(file)).err


@pytest.mark.system
@pytest.mark.parametrize("name", ["orders.json", "orders.jsonl"])
def test_an_array_within_an_object_is_taken_out(cli: CommandLine, tmp_path: Path, name: str) -> None:
    needs.program("jq")
    file = tmp_path / name
    file.write_text('{"count":2,"orders":[{"id":1,"petId":2,"quantity":3},{"id":2}]}')
    assert 0 == follow(cli, file, cli("orders", "import", str(file)).err.partition("\n")[0]).code
    assert [order(1, 2, 3), {"id": 2, "status": "pending"}] == orders(cli)


@pytest.mark.parametrize("name", ["orders.json", "orders.jsonl"])
def test_the_items_of_a_record_are_not_taken_for_records(cli: CommandLine, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text('{"id":5,"line_items":[{"id":1,"quantity":2},{"id":2,"quantity":1}]}')
    refused = cli("orders", "import", str(file))
    assert "line_items[]" not in refused.err
    [option] = options_of(refused.err)
    done = cli("orders", "import", str(file), *option)
    assert ("--ignore-column" if name.endswith("l") else "--format") == option[0], done.err


@pytest.mark.system
def test_records_over_several_lines_are_converted(cli: CommandLine) -> None:
    needs.program("jq")
    file = EXPORTS / "21c-pretty.jsonl"
    refused = cli("orders", "import", str(file))
    assert "JSON Lines has one record per line" in refused.err
    assert 0 == follow(cli, file, refused.err).code
    assert [{"id": 1, "quantity": 2, "status": "pending"}, {"id": 2, "status": "pending"}] == orders(cli)


def test_json_lines_in_a_file_for_an_array_are_read_with_the_format_that_the_message_names(
    cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "orders.json"
    for content in ('{"id":1}\n{"id":2}\n', '{"id":1}\n', "id\n1\n"):
        file.write_text(content)
        [option] = options_of(cli("orders", "import", str(file)).err)
        cli.must("orders", "import", str(file), *option)
    assert [1, 2] == [each["id"] for each in orders(cli)]


def test_a_field_of_json_in_another_spelling_is_mapped(cli: CommandLine) -> None:
    rows = '{"id":1,"Quantity":2,"Pet ID":3}'
    rejected = cli("orders", "import", "-", stdin=rows).err
    assert "'Quantity' is not a field of an order" in rejected
    options = options_of(rejected)
    assert [["--map", "Quantity=quantity"], ["--map", "Pet ID=petId"]] == options
    cli.must("orders", "import", "-", *options[0], *options[1], stdin=rows)
    assert [order(1, 3, 2)] == orders(cli)


def test_the_columns_of_two_names_for_a_field_are_distinguished(cli: CommandLine) -> None:
    rows = "id,Menge,quantity\n1,2,9\n"
    refused = cli("orders", "import", "-", "--map", "Menge=quantity", "--format", "csv", stdin=rows)
    [option] = options_of(refused.err)
    cli.must("orders", "import", "-", "--map", "Menge=quantity", *option, "--format", "csv", stdin=rows)
    assert [{"id": 1, "quantity": 2, "status": "pending"}] == orders(cli)


@pytest.mark.parametrize("encoding", ["windows-1252", "utf-16-le", "utf-16-be"])
def test_the_encoding_that_a_message_names_reads_the_file(cli: CommandLine, encoding: str) -> None:
    rows = ("Номер;id\n2;7\n" if encoding.startswith("utf") else "Größe;id\n1;7\n").encode(encoding)
    refused = cli("orders", "import", "-", "--ignore-column", "*", stdin=rows).err
    option = options_of(refused)[0]
    assert "'Größe' is a column" in refused or encoding.startswith("utf")
    cli.must("orders", "import", "-", *option, "--ignore-column", "*", stdin=rows)
    assert [7] == [each["id"] for each in orders(cli)]


def test_numbers_for_which_an_option_means_the_opposite_are_counted_apart(cli: CommandLine) -> None:
    rejected = cli("orders", "import", "-", "--format", "csv", stdin='id,quantity\n1,1.000\n2,"2,000"\n').err
    assert "line 2: quantity '1.000' can be read in two ways; give --decimal , if it is 1000" in rejected
    assert "line 3: quantity '2,000' can be read in two ways; give --decimal . if it is 2000" in rejected


def test_numbers_that_can_be_read_in_two_ways_mean_what_the_option_says(cli: CommandLine) -> None:
    rows = "id,quantity\n1,1.000\n2,2.000\n"
    rejected = cli("orders", "import", "-", "--format", "csv", stdin=rows).err
    assert "2 rows: quantity '1.000' can be read in two ways" in rejected
    assert "give --decimal , if it is 1000 or give --decimal . if it is 1," in rejected
    comma, point = options_of(rejected)
    for option, quantities in ((point, [1, 2]), (comma, [1000, 2000])):
        cli.must("orders", "import", "-", "--format", "csv", *option, stdin=rows)
        assert quantities == [each["quantity"] for each in orders(cli)]


def test_dates_that_can_be_read_in_two_ways_mean_what_the_option_says(cli: CommandLine) -> None:
    rows = "id,shipDate\n1,12/1/2026 10:00\n2,13/1/2026 10:00\n"
    rejected = cli("orders", "import", "-", "--format", "csv", stdin=rows).err
    first, other, zone = options_of(rejected)[:3]
    assert ["--timezone", "ZONE"] == zone
    assert f"give {shlex.join(first)} if it means 2026-01-12 or give {shlex.join(other)} if it means" in rejected
    cli.must("orders", "import", "-", *first, "--timezone", "UTC", "--format", "csv", stdin=rows)
    assert ["2026-01-12T10:00:00Z", "2026-01-13T10:00:00Z"] == [each["shipDate"] for each in orders(cli)]
    contradicted = cli("orders", "import", "-", *other, "--timezone", "UTC", "--format", "csv", stdin=rows).err
    assert "line 3: shipDate '13/1/2026 10:00' contradicts the date format given; give" in contradicted
    assert [first] == options_of(contradicted)


def test_the_time_zone_of_an_export_of_the_service_is_utc(cli: CommandLine) -> None:
    cli.must("orders", "import", "-", stdin='{"id":1,"shipDate":"2026-12-01T10:00:00Z"}')
    header, row = cli.must("orders", "export", "-", "--format", "csv").out.splitlines()
    edited = f"{header}\n{row.replace('2026-12-01T10:00:00Z', '01.12.2026 10:00')}\n"
    rejected = cli("orders", "import", "-", "--format", "csv", stdin=edited).err
    assert "give --timezone UTC if it is an export of this service" in rejected
    option = options_of(rejected)[0]
    assert "1 unchanged" in cli.must("orders", "import", "-", "--format", "csv", *option, stdin=edited).err


def test_all_faults_of_a_row_are_named_at_once(cli: CommandLine) -> None:
    rejected = cli(
        "orders", "import", "-", "--format", "csv", stdin="id,petId,quantity,shipDate\nx,A1,1.5,May\n,1,2,\n"
    ).err
    reasons = rejected.splitlines()
    assert ["id 'x'", "petId 'A1'", "quantity '1.5'", "shipDate 'May'"] == [
        reason.removeprefix("line 2: ").partition(" is")[0] for reason in reasons if reason.startswith("line 2: ")
    ]
    assert "line 3: 'id' is missing; every order needs one; give it one, or a reference." in reasons
    assert "0 created, 0 unchanged, 0 replaced, 2 rejected" in rejected


@pytest.mark.parametrize("marker", ["NULL", "nan", "\\N", "--", "N/A"])
@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_a_word_for_no_value_is_a_reference_only_on_request(cli: CommandLine, marker: str, file_format: str) -> None:
    rows = f"id,reference\n1,{marker}\n" if file_format == "csv" else json.dumps({"id": 1, "reference": marker})
    rejected = cli("orders", "import", "-", "--format", file_format, stdin=rows).err
    assert "seems to say that there is no value; empty such cells, or give --keep-markers if" in rejected
    cli.must("orders", "import", "-", "--format", file_format, "--keep-markers", stdin=rows)
    assert [marker] == [each["reference"] for each in orders(cli)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("14-unicode.txt", [1001, 1002]),
        ("25-pipe.csv", [1]),
        ("27-cr.csv", [1, 2]),
        ("34-header-only.csv", []),
        ("35-tabs-in-csv.tsv", [1]),
    ],
)
def test_a_file_of_one_meaning_is_imported_without_options(cli: CommandLine, name: str, expected: list[int]) -> None:
    cli.must("orders", "import", str(EXPORTS / name))
    assert expected == [each["id"] for each in orders(cli)]


def test_the_delimiter_is_the_one_that_separates_the_names_of_fields(cli: CommandLine) -> None:
    cli.must("orders", "import", str(EXPORTS / "26-header-commas.csv"), "--ignore-column", "*")
    assert [{"id": 1, "petId": 2, "status": "pending"}] == orders(cli)


def test_what_a_spreadsheet_has_damaged_is_rejected_with_how_to_keep_it(cli: CommandLine) -> None:
    rejected = cli("orders", "import", str(EXPORTS / "15-serial.csv")).err
    assert (
        "id '5.55E+12' was shortened by a spreadsheet program, which has lost its digits; export the file" in rejected
    )
    assert (
        "shipDate '46357.4166666667' is how a spreadsheet keeps a date; format the column as date and time" in rejected
    )
    assert "it is 2026-12-01 10:00" in rejected
    assert [] == orders(cli)
