"""Import files: every format and encoding of the same orders imports to the same list."""

import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from petstore_server.domain.orders import INT64_MAX, INT64_MIN, Order, Status, order_from_fields
from petstore_server.imports import bulk, csv_rows, files, json_rows, reading
from petstore_server.imports.files import MAX_ROW_BYTES, Source, UnreadableFile, line_blocks, open_source
from petstore_server.imports.options import ReadOptions
from testing.allocations import traced
from testing.cases import for_all
from testing.cli import CommandLine
from testing.import_files import PiecewiseFile, Read, batches, collect, generated, read

RECORDS: list[dict[str, Any]] = [
    {"id": 1, "petId": 10, "quantity": 2, "shipDate": "2026-11-01T10:00:00Z", "complete": False, "status": "pending"},
    {"id": 2, "petId": 11, "shipDate": "2026-11-01T10:00:00.25Z", "complete": True, "status": "shipped"},
    {"id": 3, "status": "cancelled"},
    {"id": INT64_MAX, "quantity": INT64_MIN, "status": "pending"},
    {"id": INT64_MIN, "petId": 2**53 + 1, "complete": False, "status": "shipped"},
]
EXPORT = [
    json.dumps(record, separators=(",", ":")).replace(".25Z", ".250000Z")
    for record in sorted(RECORDS, key=lambda record: record["id"])
]

JSON_LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)
CSV = """id,petId,quantity,shipDate,complete,status
1,10,2,2026-11-01T10:00:00Z,false,pending
2,11,,2026-11-01T10:00:00.25Z,true,shipped
3,,,,,cancelled
9223372036854775807,,-9223372036854775808,,,pending
-9223372036854775808,9007199254740993,,,FALSE,shipped
"""
SHUFFLED = """status;complete;shipDate;quantity;petId;id
pending;False;2026-11-01T12:00:00+02:00;2;10;1
shipped;TRUE;2026-11-01T10:00:00.250Z;;11;2
cancelled;;;;;3
pending;;;-9223372036854775808;;9223372036854775807
shipped;false;;;9007199254740993;-9223372036854775808
"""


def quoted(text: str) -> str:
    return "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in text.splitlines())


FILES = {
    "lines.jsonl": JSON_LINES,
    "blank lines and no final newline.jsonl": "\n\n" + JSON_LINES.replace("\n", "\r\n\r\n").rstrip(),
    "byte order mark.jsonl": "\ufeff" + JSON_LINES,
    "compact.json": json.dumps(RECORDS, separators=(",", ":")),
    "indented.json": json.dumps(RECORDS, indent=4) + "\n\n",
    "byte order mark.json": "\ufeff" + json.dumps(RECORDS),
    "plain.csv": CSV,
    "crlf and no final newline.csv": "\ufeff" + CSV.replace("\n", "\r\n").rstrip(),
    "crlf, blank lines and no final newline.csv": "\ufeff" + CSV.replace("\n", "\r\n\r\n").rstrip(),
    "quoted.csv": quoted(CSV),
    "blank rows.csv": CSV + ",,,,,\n\n,,,,,",
    "blank rows before the header.csv": ",,,,,\n;;\n \t\n" + CSV,
    "blank rows around the header.csv": ";;;;;\n" + SHUFFLED.replace("\n", "\n;;;;;\n", 1),
    "other order and semicolons.csv": SHUFFLED,
    "every cell quoted, with blank lines.csv": quoted(SHUFFLED.replace(";", ",")).replace("\n", "\r\n\r\n"),
    "header in another case.csv": SHUFFLED.replace(
        SHUFFLED.split("\n", 1)[0], "Status;COMPLETE;ship_date;Quantity;Pet ID;Id"
    ),
    "unused column at the end.csv": CSV.replace("\n", ",\n"),
    "unused columns at the end.csv": CSV.replace("\n", ",,\n"),
    "named delimiter.csv": "sep=;\r\n" + SHUFFLED.replace("\n", "\r\n"),
    "tabs.tsv": CSV.replace(",", "\t"),
    "lines that end with CR.csv": CSV.replace("\n", "\r"),
    "lines that end with CR.jsonl": "\r" + JSON_LINES.replace("\n", "\r"),
    "header over several lines.csv": CSV.replace("petId", '"pet\r\nId"'),
}


@for_all(FILES)
def test_every_form_of_the_orders_is_read_alike(name: str) -> None:
    file_format = name.rpartition(".")[2]
    found = read(FILES[name].encode(), "csv" if file_format == "tsv" else file_format)
    assert ([order_from_fields(record) for record in RECORDS], []) == (found.orders, found.rejects)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("name", ["plain.csv", "tabs.tsv", "compact.json", "lines.jsonl"])
def test_the_ending_of_a_file_and_its_byte_order_mark_name_format_and_encoding(
    cli: CommandLine, tmp_path: Path, name: str, encoding: str
) -> None:
    file = tmp_path / name
    file.write_bytes(FILES[name].encode(encoding))
    assert "5 created, 0 unchanged, 0 replaced, 0 rejected" in cli.must("orders", "import", str(file)).err
    assert EXPORT == cli.must("orders", "export", "-").out.splitlines()


@pytest.mark.parametrize("format_", ["jsonl", "json", "csv"])
def test_an_export_can_be_imported_again_without_a_change(cli: CommandLine, tmp_path: Path, format_: str) -> None:
    file, empty = tmp_path / f"export.{format_}", tmp_path / f"empty.{format_}"
    cli.must("orders", "export", str(empty))
    assert "0 created" in cli.must("orders", "import", str(empty)).err
    assert "0 created" in cli.must("orders", "import", "-", stdin=empty.read_bytes()).err
    cli.must("orders", "import", "-", stdin=CSV)
    cli.must("orders", "export", str(file))
    again = cli.must("orders", "import", str(file), "--json").json()
    assert (0, 5, 0, 0) == (again["created"], again["unchanged"], again["replaced"], again["rejected"])
    other = CommandLine(tmp_path / "other.db")
    other.must("orders", "import", str(file))
    assert EXPORT == other.must("orders", "export", "-").out.splitlines()


def read_in_pieces(content: bytes, size: int, file_format: str) -> Read:
    """The file, read from a pipe that gives at most `size` bytes at a time."""
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    return collect(batches(PiecewiseFile(pieces), ReadOptions(file_format)))


@given(st.integers(1, 40), st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["lines.jsonl", "plain.csv"]))
def test_line_ends_are_recognized_however_the_file_is_cut(size: int, end: str, name: str) -> None:
    content = FILES[name].replace("\n", end).encode()
    found = read_in_pieces(content, size, name.rpartition(".")[2])
    assert [record["id"] for record in RECORDS] == [order.id for order in found.orders]


INT64 = st.integers(INT64_MIN, INT64_MAX)
ANY_ORDER = st.builds(
    Order,
    INT64,
    st.none() | INT64,
    st.none() | INT64,
    st.sampled_from([None, "2026-11-01T10:00:00Z", "0001-01-01T00:00:00.000001Z"]),
    st.none() | st.booleans(),
    st.sampled_from(Status),
    st.none() | st.sampled_from(["1", "a, {b", "\N{CAT FACE}"]),
    st.none() | st.sampled_from(["zoo", "acme"]),
)


@given(st.lists(ANY_ORDER, max_size=6), st.sampled_from(["", " ", "\n", "\r\n\t"]), st.integers(1, 40))
def test_an_array_is_read_alike_however_it_is_spaced_and_cut(orders: list[Order], blank: str, size: int) -> None:
    elements = [json.dumps(order.fields(), indent=blank or None) for order in orders]
    content = blank + "[" + blank + f"{blank},{blank}".join(elements) + blank + "]" + blank
    found = read_in_pieces(content.encode(), size, "json")
    assert (orders, []) == found[::2]
    assert elements == [row.raw.decode() for row in found.rows]


@given(st.text(alphabet='{}[]",:\\ \n1aid', max_size=60))
def test_an_array_is_refused_or_each_element_is_a_row_or_a_reject(text: str) -> None:
    content = f"[{text}"
    try:
        elements = json.loads(content)
    except ValueError:
        with pytest.raises(UnreadableFile, match=r"not a JSON array: .* in line \d+, column \d+"):
            read(content.encode(), "json")
    else:
        found = read(content.encode(), "json")
        assert len(elements) == len(found.rows) + len(found.rejects)


@given(
    st.lists(st.sampled_from(["1", "2,3", '"4', '5"', '"6\n7"', '"', "\n", "\r\n", ",", "x"]), max_size=30).map(
        "".join
    ),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from(["csv", "jsonl"]),
)
def test_rows_are_read_alike_however_they_are_divided_into_blocks(
    text: str, rows: int, size: int, file_format: str
) -> None:
    content = f"{'id,petId' if file_format == 'csv' else '{}'}\n{text}".encode()
    whole = read(content, file_format)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_ROWS", rows)
        patch.setattr(files, "_BLOCK_BYTES", size)
        assert whole == read_in_pieces(content, size, file_format)


def row_by_row(content: bytes, options: ReadOptions | str) -> Read:
    """The file without reading in bulk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "ORDERS", None)
        return read(content, options)


FLAGGED = ReadOptions(
    "csv", columns=(("quantity", "shipped"), ("complete", "cancelled")), statuses=(("", "shipped"),), account="zoo"
)

OTHERS = ReadOptions("csv", statuses=(("*", "shipped"),))


CELL = st.one_of(
    INT64.map(str),
    st.sampled_from(["", " ", "0", "-0", "007", "1.0", "1e3", "true", "WAHR", "pending", "Shipped", "lost"]),
    st.sampled_from(["2026-11-01T10:00:00Z", "2026-11-01T24:00:00Z", "2026-02-30T10:00:00Z", '"7"', '"1,2"', '"']),
    st.sampled_from(["9" * 20, "-" + "9" * 20]),
    st.just("2026-11-01T10:00:00.5+02:00"),
    st.text(max_size=5),
)


@given(
    st.lists(st.lists(CELL, min_size=5, max_size=8).map(",".join), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([ReadOptions("csv"), FLAGGED, OTHERS]),
)
@example(["1,-0,1,,,,"], "\n", ReadOptions("csv"))
@example(['"1,2",1,1,,,,'], "\n", ReadOptions("csv"))
@example(["1,2,x,,,,", "2,2,,,no,,", "3,2,,,,pending,"], "\n", FLAGGED)
@example(["1,,,,, ,"], "\n", OTHERS)
def test_reading_csv_in_bulk_finds_what_reading_row_by_row_finds(
    rows: list[str], end: str, options: ReadOptions
) -> None:
    content = end.join(["id,petId,quantity,shipDate,complete,status,reference", *rows]).encode()
    assert row_by_row(content, options) == read(content, options)


VALUE = st.one_of(
    INT64,
    st.integers(),
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "1", "pending", "lost", "2026-11-01T10:00:00Z", "2026-11-01 10:00:00+02:00", "2026-13-01", '"']
    ),
    st.text(max_size=4),
)
NAME = st.sampled_from(["id", "petId", "quantity", "shipDate", "complete", "status", "reference", "pet_id", "colour"])
OBJECT = st.lists(st.tuples(NAME, VALUE), max_size=7).map(
    lambda pairs: "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs) + "}"
)


@pytest.mark.parametrize(
    ("file_format", "join"), [("jsonl", "\n".join), ("json", lambda elements: f"[{','.join(elements)}]")]
)
@given(
    elements=st.lists(OBJECT | ANY_ORDER.map(lambda order: json.dumps(order.fields())), min_size=1, max_size=8),
    account=st.sampled_from([None, "zoo"]),
)
@example(elements=['{"id":1,"account":""}'], account="zoo")
def test_reading_json_in_bulk_finds_what_reading_row_by_row_finds(
    file_format: str, join: Callable[[list[str]], str], elements: list[str], account: str | None
) -> None:
    content, options = join(elements).encode(), ReadOptions(file_format, account=account)
    assert row_by_row(content, options) == read(content, options)


@pytest.mark.parametrize(
    "lines",
    [
        ['{"id":1},{"id":2}'],
        ['{"id":1', '"petId":2}'],
        ['{"id":1', '"petId":2},{"id":3}'],
        ['{"id":1}', '{"id":2', '"reference":"}"}', '{"id":3},{"id":4}'],
        ['{"id":1,"reference":"}', '{","petId":2}'],
    ],
)
def test_lines_that_are_not_one_record_each_are_rejected(lines: list[str]) -> None:
    found = read("\n".join(lines).encode(), "jsonl")
    assert row_by_row("\n".join(lines).encode(), "jsonl") == found
    assert len(lines) == len(found.rows) + len(found.rejects)


@pytest.mark.parametrize(
    ("file_format", "content"),
    [("jsonl", JSON_LINES), ("json", json.dumps(RECORDS)), ("csv", CSV), ("csv", CSV.replace("\n", "\r\n"))],
)
def test_plain_records_are_read_in_bulk(file_format: str, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("a row was read by itself")

    monkeypatch.setattr(reading, "csv_fields", unexpected)
    monkeypatch.setattr(reading, "json_fields", unexpected)
    assert [record["id"] for record in RECORDS] == [order.id for order in read(content.encode(), file_format).orders]


def many(file_format: str, count: int) -> Iterator[bytes]:
    if file_format == "csv":
        yield b"id,petId,status\n"
    row = {"csv": b"%d,7,shipped\n", "jsonl": b'{"id":%d,"petId":7}\n', "json": b'{"id":%d,"petId":7},'}[file_format]
    yield from (row % number for number in range(count))


@pytest.mark.parametrize(
    ("file_format", "bad", "count"),
    [("jsonl", b"", 14_000), ("jsonl", b"bad\n", 5_000), ("csv", b"", 14_000), ("csv", b'"[[7],"]\n', 5_000)],
)
def test_memory_does_not_grow_with_the_file(file_format: str, bad: bytes, count: int) -> None:
    stream = generated(piece + (bad if number % 3 else b"") for number, piece in enumerate(many(file_format, count)))
    with traced() as peak:
        found = sum(len(batch.records) + len(batch.rejects) for batch in batches(stream, ReadOptions(file_format)))
        assert peak() < 2_200_000, "all records and rejects together have 2.7 MB and more"
    assert found >= count


def zip_of(name: str) -> bytes:
    """The archive that a Mac makes of a file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "id\n1\n")
        archive.writestr(f"__MACOSX/._{name}", b"\0\x05\x16\7")
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "member"), [("my orders.csv", "unzip -p FILE 'my orders.csv' |"), ("orders[1].csv", "unzip -p FILE |")]
)
def test_the_step_for_a_zip_archive_names_its_file(cli: CommandLine, name: str, member: str) -> None:
    refused = cli("orders", "import", "-", stdin=zip_of(name) + b"\x80" * 300)
    refused.fails(1, f"The file is a zip archive; unpack it, or pipe it: {member} petstore orders import -")
    checked = cli("orders", "import", "-", "--dry-run", stdin=zip_of(name) + b"\x80" * 300)
    checked.fails(1, f"{member} petstore orders import --dry-run -")


def test_an_array_that_is_too_large_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "MAX_ARRAY_BYTES", 2_000_000)
    stream = generated(chain([b"["], many("json", 500_000)))
    with traced() as peak:
        with pytest.raises(UnreadableFile, match="larger than 100 MB") as refused:
            list(batches(stream, ReadOptions("json")))
        assert peak() < 8_000_000, "the array has 11 MB"
    assert refused.value.remedy
    assert "convert it to JSON Lines, such as with jq -c" in refused.value.remedy.text
    assert [Order(1)] == read(b'[{"id":1}'.ljust(1_999_999) + b"]", "json").orders


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
def test_blank_lines_before_the_rows_take_no_memory(file_format: str) -> None:
    first = {"jsonl": b'{"id":1}', "csv": b"id\n1"}[file_format]
    stream = generated(chain(((b" " * 999 + b"\n") * 100 for _ in range(200)), [first]))
    with traced() as peak:
        assert 1 == sum(len(batch.records) for batch in batches(stream, ReadOptions(file_format)))
        assert peak() < 8_000_000, "the blank lines are 20 MB"


@pytest.mark.parametrize(("delimiter", "blank"), [(",", ""), (",", ",,\r"), (";", " ;\t"), ("\t", "\t\t")])
def test_blank_rows_of_csv_are_skipped_without_a_reader_for_each(
    delimiter: str, blank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, seen = csv_rows._split, list[int]()

    def counted(block: Any, at: int, *more: Any) -> Any:
        seen.append(block.number + at)
        return split(block, at, *more)

    monkeypatch.setattr(csv_rows, "_split", counted)
    lines = [f"id{delimiter}quantity", *[blank] * 2_500, f"1{delimiter}2", *[blank] * 2_500, f"x{delimiter}"]
    done = read("\n".join(lines).encode(), "csv")
    assert ([Order(1, quantity=2)], [5_003]) == (done.orders, [reject.line for reject in done.rejects])
    assert {1, 2_502, 5_003} >= set(seen)


def test_an_overlong_line_is_kept_up_to_its_bound() -> None:
    pieces = [b"1\n", *[b"x" * 50_000] * 60, b"\n2"]
    lines = [line for block in line_blocks(pieces) for line in block.lines]
    assert (b"1", b"2") == (lines[0], lines[2])
    assert MAX_ROW_BYTES < len(lines[1]) <= MAX_ROW_BYTES + 2


def test_a_line_feed_at_the_beginning_of_a_piece_belongs_to_the_return_before_it() -> None:
    pieces = [b"id,petId\r", b"\n1,2\r", b"\n"]
    assert b"".join(pieces) == b"".join(Source(PiecewiseFile(pieces), "-", None).text())
    assert [Order(7)] == read(b"id\r7", "csv").orders


def test_reading_begins_with_the_first_line_that_arrives() -> None:
    file = PiecewiseFile([b"id,petId\n", b"1,2\n"])
    Source(file, "-", None).text()
    assert b"1,2\n" == file.read()


def test_the_size_of_a_file_is_known_and_stdin_is_read_without_a_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_bytes(b'{"id":1}')
    for name, size in ((str(file), 8), ("/dev/null", None)):
        with open_source(name) as source:
            assert size == source.size
    with io.TextIOWrapper(io.BufferedReader(io.FileIO(file))) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with open_source("-") as source:
            assert (stdin.buffer.raw, None) == (source._file, source.size)


def test_the_position_of_a_batch_is_how_much_of_the_file_was_imported_with_it() -> None:
    content = b"[" + b",".join(b'{"id":%d}' % number for number in range(100_000)) + b"]"
    positions = [batch.position for batch in batches(io.BytesIO(content), ReadOptions("json"))]
    assert positions[0] < len(content) // 2
    assert (sorted(positions), len(content)) == (positions, positions[-1])
