"""Import files: every format and encoding of the same orders imports to the same list."""

import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.cli.orders import ORDERS
from petstore_server.domain.orders import INT64_MAX, INT64_MIN, Order, Status, order_from_fields
from petstore_server.formats import json_rows
from petstore_server.formats.reading import Source
from petstore_server.formats.rows import Reject, Row, UnreadableFile
from support.command_line import CommandLine

RECORDS: list[dict[str, Any]] = [
    {"id": 1, "petId": 10, "quantity": 2, "shipDate": "2026-11-01T10:00:00Z", "complete": False, "status": "pending"},
    {"id": 2, "petId": 11, "shipDate": "2026-11-01T10:00:00.25Z", "complete": True, "status": "shipped"},
    {"id": 3, "status": "cancelled"},
    {"id": INT64_MAX, "quantity": INT64_MIN, "status": "pending"},
    {"id": INT64_MIN, "petId": 2**53 + 1, "complete": False, "status": "shipped"},
]
EXPORT = [json.dumps(record, separators=(",", ":")) for record in sorted(RECORDS, key=lambda record: record["id"])]
EXPORT[EXPORT.index(next(line for line in EXPORT if ".25Z" in line))] = (
    '{"id":2,"petId":11,"shipDate":"2026-11-01T10:00:00.250000Z","complete":true,"status":"shipped"}'
)

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
    "crlf, blank lines and no final newline.csv": "\ufeff" + CSV.replace("\n", "\r\n\r\n").rstrip(),
    "quoted.csv": quoted(CSV),
    "blank rows.csv": CSV + ",,,,,\n\n,,,,,",
    "other order and semicolons.csv": SHUFFLED,
    "named delimiter.csv": "sep=;\r\n" + SHUFFLED.replace("\n", "\r\n"),
    "tabs.tsv": CSV.replace(",", "\t"),
}


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "store.db")


@pytest.mark.parametrize("name", FILES)
def test_every_form_of_the_orders_imports_to_the_same_list(cli: CommandLine, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(FILES[name].encode())
    done = cli.must("orders", "import", str(file))
    assert "5 created, 0 unchanged, 0 replaced, 0 rejected" in done.err
    assert EXPORT == cli.must("orders", "export", "-").out.splitlines()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
@pytest.mark.parametrize("name", ["plain.csv", "compact.json", "lines.jsonl"])
def test_utf_16_is_told_by_its_byte_order_mark(cli: CommandLine, tmp_path: Path, name: str, encoding: str) -> None:
    mark = "" if encoding == "utf-16" else "\ufeff"
    file = tmp_path / name
    file.write_bytes((mark + FILES[name]).encode(encoding))
    cli.must("orders", "import", str(file))
    assert EXPORT == cli.must("orders", "export", "-").out.splitlines()


@pytest.mark.parametrize("name", ["plain.csv", "indented.json", "blank lines and no final newline.jsonl"])
def test_on_stdin_the_first_character_tells_the_format(cli: CommandLine, name: str) -> None:
    cli.must("orders", "import", "-", stdin=FILES[name].encode())
    assert EXPORT == cli.must("orders", "export", "-").out.splitlines()


@pytest.mark.parametrize("format_", ["jsonl", "json", "csv"])
def test_an_export_can_be_imported_again_without_a_change(cli: CommandLine, tmp_path: Path, format_: str) -> None:
    cli.must("orders", "import", "-", stdin=CSV)
    file = tmp_path / f"export.{format_}"
    cli.must("orders", "export", str(file))
    again = cli.must("orders", "import", str(file), "--json").json()
    assert (0, 5, 0, 0) == (again["created"], again["unchanged"], again["replaced"], again["rejected"])
    other = CommandLine(tmp_path / "other.db")
    other.must("orders", "import", str(file))
    assert EXPORT == other.must("orders", "export", "-").out.splitlines()


@pytest.mark.parametrize("format_", ["jsonl", "json"])
def test_an_empty_store_exports_to_a_file_that_imports(cli: CommandLine, tmp_path: Path, format_: str) -> None:
    cli.must("db", "migrate")
    file = tmp_path / f"export.{format_}"
    cli.must("orders", "export", str(file))
    assert "0 created" in cli.must("orders", "import", str(file)).err


def test_pets_come_from_every_format(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "pets.csv").write_text('id;name;tag\n1;"Søren; the ""great""";dog\n2;;\n', "utf-8")
    cli.must("pets", "import", str(tmp_path / "pets.csv"))
    done = cli.must("pets", "import", "-", "--json", stdin='[{"id":1,"name":"Rex"},{"id":3,"tag":"cat"}]')
    assert (1, 1) == (done.json()["created"], done.json()["replaced"])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "\n\r\n", "is empty"),
        ("a.csv", "1,10,1,,,pending\n", "must name the columns"),
        ("a.csv", "id,pet\n1,2\n", "'pet'"),
        ("a.csv", "petId,status\n1,pending\n", "no column 'id'"),
        ("a.csv", "id,petId,id\n1,2,3\n", "a column twice"),
        ("a.csv", "id,petId,\n1,2,\n", "no column in its last place"),
        ("a.csv", b"id,\xff\n1,2\n", "not valid UTF-8"),
        ("a.json", '{"id":1}\n', "no JSON array"),
        ("a.json", "", "no JSON array"),
    ],
)
def test_a_file_that_is_none_is_refused_whole(
    cli: CommandLine, tmp_path: Path, name: str, content: str | bytes, reason: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    done = cli("orders", "import", str(file))
    assert (1, "") == (done.code, done.out)
    assert reason in done.err
    assert "" == cli.must("orders", "export", "-").out


INT64 = st.integers(INT64_MIN, INT64_MAX)
ANY_ORDER = st.builds(
    Order,
    INT64,
    st.none() | INT64,
    st.none() | INT64,
    st.sampled_from([None, "2026-11-01T10:00:00Z", "0001-01-01T00:00:00.000001Z"]),
    st.none() | st.booleans(),
    st.sampled_from(Status),
)


def read(content: bytes, file_format: str | None = None) -> list[Row | Reject]:
    return list(Source(io.BytesIO(content), "-", None).rows(file_format, ORDERS.cells))


@given(st.lists(ANY_ORDER, max_size=6), st.sampled_from(["", " ", "\n", "\r\n\t"]), st.integers(1, 40))
def test_an_array_is_read_alike_however_it_is_spaced_and_cut(orders: list[Order], blank: str, chunk: int) -> None:
    elements = [json.dumps(order.fields(), indent=blank or None) for order in orders]
    content = blank + "[" + blank + f"{blank},{blank}".join(elements) + blank + "]" + blank
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "_CHUNK_BYTES", chunk)
        rows = read(content.encode(), "json")
    assert orders == [order_from_fields(row.fields) for row in rows if isinstance(row, Row)]
    assert len(orders) == len(rows)


@given(st.text(alphabet='{}[]",:\\ \n1aid', max_size=60), st.integers(1, 30))
def test_whatever_an_array_holds_is_a_row_or_a_reject(text: str, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "_CHUNK_BYTES", chunk)
        rows = read(f"[{text}".encode(), "json")
    told = "".join(row.raw.decode() if isinstance(row, Row) else row.raw for row in rows)
    for character in '"{a1':  # nothing but blanks, commas and the array's own brackets may go untold
        assert text.count(character) == told.count(character)


@given(st.binary(max_size=80))
def test_whatever_bytes_a_csv_holds_never_break_the_reading(content: bytes) -> None:
    for row in read(b"id,petId\n" + content, "csv"):
        assert row.line >= 2


class Endless(io.RawIOBase):
    """A file that is made while it is read, so that the memory measured is the reader's own."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while len(self._rest) < len(buffer) and (piece := next(self._pieces, b"")):
            self._rest += piece
        given, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)


def many(file_format: str, count: int) -> Iterator[bytes]:
    if file_format == "csv":
        yield b"id,petId,status\n"
        yield from (b"%d,7,shipped\n" % number for number in range(count))
        return
    yield b"["
    yield from (b'{"id":%d,"petId":7},' % number for number in range(count))
    yield b"]"


@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_memory_does_not_grow_with_the_file(file_format: str) -> None:
    stream = cast("BinaryIO", io.BufferedReader(Endless(many(file_format, 60_000))))
    tracemalloc.start()
    try:
        rows = Source(stream, "-", None).rows(file_format, ORDERS.cells)
        count = sum(1 for row in rows if isinstance(row, Row))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count >= 60_000
    assert peak < 4_000_000, "60,000 rows are about 1.5 MB in the file and 30 MB as records"


def test_a_file_that_is_no_array_says_what_to_do() -> None:
    with pytest.raises(UnreadableFile, match="--format jsonl"):
        read(b'{"id":1}', "json")
