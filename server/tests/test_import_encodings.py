"""Encodings of import files: each that can be given is read, and what is not text in it is reported."""

import encodings.aliases
import io
import json
import subprocess
from contextlib import suppress
from itertools import chain, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petstore_server.imports.files import NOT_UTF8, Source, UnreadableFile
from petstore_server.imports.options import ReadOptions, check_encoding
from petstore_server.imports.rejects import Reject, Row
from testing.cases import for_all
from testing.cli import CommandLine
from testing.console import Browser, Console, finished, upload
from testing.import_files import read

ROWS = "id,petId\r\n1,2\r\n3,4\r\n"
WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]


def accepted(name: str) -> bool:
    with suppress(ValueError):
        return bool(check_encoding(name))
    return False


ENCODINGS = sorted(filter(accepted, {*encodings.aliases.aliases.values(), *WIDE}))


@pytest.mark.parametrize(
    "name", ["rot13", "idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "a\0b"]
)
def test_what_is_not_an_encoding_of_text_files_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not an encoding of text files"):
        check_encoding(name)


@for_all(ENCODINGS)
def test_every_encoding_that_can_be_given_is_read(encoding: str) -> None:
    found = read(ROWS.encode(encoding), ReadOptions("csv", encoding))
    assert ([1, 3], []) == ([order.id for order in found.orders], found.rejects)


@settings(max_examples=50)
@given(
    st.none() | st.sampled_from(ENCODINGS),
    st.sampled_from(["id,petId\n", ""]),
    st.binary(max_size=80)
    | st.text(alphabet='1id,\r\n"; =sepx', max_size=30).map(str.encode)
    | st.lists(st.sampled_from([b"\n", b",", b"1", b"+AG", b"\x1b$B", b"~{", b"\x00"]) | st.binary(max_size=3)).map(
        b"".join
    ),
)
def test_no_bytes_in_a_csv_break_the_reading_in_any_encoding(encoding: str | None, header: str, content: bytes) -> None:
    with suppress(UnreadableFile):
        found = read(header.encode(encoding or "utf-8") + content, ReadOptions("csv", encoding))
        assert min((each.line for each in chain[Row | Reject](found.rows, found.rejects)), default=2) >= 2


@for_all(
    [
        ("utf-7", b"+AG,5"),
        ("utf-7", b"2,+AG"),
        ("shift_jis", b"2,\x81"),
        ("iso2022_jp", b"2,\x1b$B\x7f\x7f\x1b(B"),
        ("gb18030", b"2,\x81\x30"),
        ("windows-1252", b"2,\x81"),
        ("utf-32-le", "2,".encode("utf-32-le") + b"\x00\x00\x00\x7f"),
    ]
)
def test_bytes_that_are_not_text_cost_their_own_row_only(case: tuple[str, bytes]) -> None:
    encoding, row = case
    before, after = ("id,petId\n1,2\n".encode(encoding), "\n3,4\n".encode(encoding))
    found = read(before + row + after, ReadOptions("csv", encoding))
    assert [1, 3] == [order.id for order in found.orders]
    assert [(3, NOT_UTF8.message)] == [(each.line, each.faults[0].message) for each in found.rejects]


@for_all(product(WIDE, (ROWS, json.dumps([{"id": 1}, {"id": 3}]), '\n\n{"id":1}\n{"id":3}\n')))
def test_a_wide_encoding_is_recognized_with_and_without_a_byte_order_mark(case: tuple[str, str]) -> None:
    encoding, content = case
    for mark, given_encoding in (("", None), ("", "utf-8"), ("", "utf-16"), ("", encoding), ("\ufeff", None)):
        found = read((mark + content).encode(encoding), ReadOptions(None, given_encoding))
        assert ([1, 3], []) == ([order.id for order in found.orders], found.rejects), (mark, given_encoding)


@pytest.mark.anyio
async def test_the_console_names_its_field_for_the_encoding_and_rejects_rows_that_are_not_text(
    console: Console, browser: Browser
) -> None:
    content = "Номер;id\r\n1;2\r\n".encode("utf-16-le")
    assert "zero bytes, as text in UTF-16 does; enter utf-16-le under “Encoding”" in await upload(
        browser, content, 400, name="orders.csv"
    )
    path = await upload(browser, b"id,petId\n1,2\n2,+AG\n", name="orders.csv", encoding="utf-7")
    assert "Rejected 1" in await finished(browser, path)


@pytest.mark.parametrize(
    ("content", "encoding", "is_utf8"),
    [
        ("id,note\n1,M\u00fcller\n".encode(), "windows-1252", True),
        ("id,note\n1,M\u00fcller\n".encode(), "utf8", False),
        ("id,note\n1,M\u00fcller\n".encode(), None, False),
        ("\ufeffid,note\n1,M\u00fcller\n".encode(), "windows-1252", False),
        ("id,note\n1,M\u00fcller\n".encode("windows-1252"), "windows-1252", False),
        (b"id,note\n1,M\xc3", "windows-1252", False),  # half a character at the end
        (b"id,note\n1,Mueller\n", "windows-1252", False),
        ("id,note\n1,M\u00fcller\n".encode("utf-16"), "utf-16", False),
        (b"id,note\n" + b"1,x" * 65_535 + "\u00fc".encode() + b"\n", "latin-1", True),
    ],
)
def test_a_file_in_utf8_that_is_read_in_another_encoding_is_noticed(
    content: bytes, encoding: str | None, is_utf8: bool
) -> None:
    source = Source(io.BytesIO(content), "orders.csv", None)
    for _ in source.text(encoding):
        pass
    assert is_utf8 is source.is_utf8


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize(
    "content",
    [
        "Orders\nid,reference\n1,€\n",
        "Orders\nid,petId\n1,5",
        "1,5,1\n",
        "1;5;1",
        "1\t5\t1",
        '{"orders":[\n{"id":1}]}\n',
    ],
)
def test_the_step_for_a_file_works_whatever_its_encoding_and_line_ends(
    cli: CommandLine, tmp_path: Path, content: str, end: str, encoding: str
) -> None:
    file = tmp_path / ("orders.json" if content.startswith("{") else "orders.csv")
    file.write_bytes(content.replace("\n", end).encode(encoding))
    refused = cli("orders", "import", str(file)).err
    step, _, command = refused.partition(": ")[2].partition(": ")[2].partition(" | petstore ")
    if command.startswith("orders import - --format jsonl"):
        step = step.replace("jq -c '.orders[]'", "cat")  # jq is not installed everywhere
    printed = subprocess.run(["bash", "-c", step.replace("FILE", str(file))], capture_output=True, check=True)
    if command.startswith("orders import - --format jsonl"):
        assert {"orders": [{"id": 1}]} == json.loads(printed.stdout)
    else:
        assert printed.stdout.endswith(b"\n"), "or the last row may seem to have been cut off"
        done = cli("orders", "import", "-", "--format", "csv", stdin=printed.stdout.decode())
        assert (0, True) == (done.code, "1 created, 0 unchanged, 0 replaced, 0 rejected" in done.err)
