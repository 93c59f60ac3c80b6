"""Import files with bad rows: each is reported with line, column and reason, and the others are imported (D7)."""

import json
import tempfile
from functools import partial
from pathlib import Path

import pytest

from petstore_server.cli import importing
from petstore_server.cli.importing import phrased
from petstore_server.domain.imports import MAX_KEPT_REJECTS
from petstore_server.domain.texts import hide_keys
from petstore_server.imports import files
from petstore_server.imports import rejects as rejects_module
from petstore_server.imports.files import UnreadableFile
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.rejects import Fault, Reject, Rejects, Row
from testing.cli import CommandLine
from testing.import_files import read, reason_of


def imported_from(content: str | bytes, options: ReadOptions | str) -> tuple[list[int], list[Reject]]:
    """The identifiers of the orders that an import of the file would store, and what it rejects."""
    found = read(content if isinstance(content, bytes) else content.encode(), options)
    return [order.id for order in found.orders], found.rejects


def test_a_repeated_name_is_found_among_very_many() -> None:
    names = [*(f"n{number}" for number in range(80_000)), "last", "last"]
    row = "{" + ",".join(f'"{name}":1' for name in names) + "}"
    imported, rejects = imported_from(f'{row}\n{{"id":8}}', "jsonl")
    assert [8] == imported
    assert ["last"] == [each.column for each in rejects]


def test_a_record_of_any_depth_is_rejected() -> None:
    rows = [f'{{"id":1,"x":{"[" * depth}{"]" * depth}}}' for depth in (*range(800, 1100), 100_000)]
    found = read("\n".join(rows).encode(), "jsonl")  # some can be decoded, but not be examined for repeated names
    assert ([], len(rows)) == (found.orders, len(found.rejects))
    assert "nested too deeply" in reason_of(read(rows[-1].encode(), "jsonl").rejects[0])


@pytest.mark.parametrize("depth", [30, 800, 1100, 100_000, 10_000_000])
def test_an_array_of_any_depth_is_refused_or_its_element_rejected(depth: int) -> None:
    content = f'[{{"id":1,"x":{"[" * depth}{"]" * depth}}}]'.encode()
    outcome: object
    try:
        found = read(content, "json")
        outcome = (len(found.orders), len(found.rejects))
    except UnreadableFile as error:
        outcome = str(error)
    rejected, refused = (0, 1), "The file is not an array of records: it is nested too deeply."
    assert outcome in ((rejected,) if depth < 900 else (rejected, refused))  # it depends on the version of Python


@pytest.mark.parametrize("field", ["id", "petId", "quantity", "shipDate", "complete"])
@pytest.mark.parametrize("word", ["NULL", r"\N", "nan", "#N/A"])
def test_a_word_for_no_value_leads_to_an_empty_cell(field: str, word: str) -> None:
    reason = "seems to say that there is no value; empty such cells, or give null in JSON."
    [rejected] = read(f"reference,{field}\nA,{word}\n".encode(), "csv").rejects
    assert f"{field} '{word}' {reason}" == reason_of(rejected)
    assert not read(f"reference,{field}\nA,\n".encode(), "csv").rejects


def test_a_number_of_very_many_digits_is_not_a_whole_number_in_plain_digits() -> None:
    found = read(b'id;petId\n1;"1' + b",111" * 2000 + b'"\n2;1' + b" 111" * 2000, "csv")
    assert [("petId", True)] * 2 == [(each.column, "plain digits" in reason_of(each)) for each in found.rejects]


@pytest.mark.parametrize("rows", [1000, 101])
def test_a_cell_may_have_a_hundred_line_feeds(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)  # with 101, a block has the header and 100 lines of the row
    for count, expected in ((101, [2]), (100, [1, 2])):
        content = 'id,note\n1,"' + "x\n" * count + '"\n2,y\n'
        assert expected == imported_from(content, ReadOptions("csv", ignored=("note",)))[0]


@pytest.mark.parametrize("note", ["{}", '"{}"', '"x\n\n{}"'], ids=["plain", "quoted", "over lines"])
def test_a_row_has_a_greatest_length(note: str) -> None:
    for more in (0, 1):
        row = "1," + note.format("x" * (files.MAX_ROW_BYTES + more - len(f"1,{note.format('')}")))
        imported, rejects = imported_from(f"id,note\n{row}\n2,y\n", ReadOptions("csv", ignored=("note",)))
        assert [1, 2][more:] == imported
    reason = f"not closed within 100 lines and {files.MAX_ROW_BYTES} bytes" if "\n" in note else files.TOO_LONG
    assert reason in reason_of(rejects[0])
    assert 65_536 == len(rejects[0].raw) or "\n" in note


def test_a_json_row_of_the_greatest_length_is_read_without_the_blanks_around_it_and_a_longer_one_rejected() -> None:
    long = '{"id":3'.ljust(files.MAX_ROW_BYTES) + "}"
    rows = ['{"id":1'.ljust(files.MAX_ROW_BYTES - 1) + "}", '{"id":"x"}'.ljust(files.MAX_ROW_BYTES), long, '{"id":2}']
    imported, rejects = imported_from("\n".join(rows), "jsonl")
    assert ([1, 2], ['{"id":"x"}', long[:65_536]]) == (imported, [each.raw for each in rejects])
    assert (3, f"The row {files.TOO_LONG}.") == (rejects[1].line, reason_of(rejects[1]))


def test_the_record_of_a_long_row_takes_its_beginning_only(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def counted(text: str) -> str:
        searched.append(len(text))
        return hide_keys(text)

    monkeypatch.setattr(rejects_module, "hide_keys", counted)
    raw = Reject(1, "x" * 1990 + "pso_live_0aZ" + "b" * 9000, (Fault("too long"),)).recorded(phrased)["raw"]
    assert "x" * 1990 + "pso_live_[" == raw
    assert 2000 == max(searched)  # characters, while the store is locked


def test_a_long_row_is_not_quoted_up_to_the_middle_of_a_character() -> None:
    assert "€" * 21_845 == Row(1, ("€" * 30_000).encode()).reject().raw
    assert r"a\xe2\x82" == Row(1, b"a\xe2\x82").reject().raw


def test_the_reasons_that_are_counted_are_bounded() -> None:
    rejects = Rejects()
    rejects.add(Reject(number, "", (Fault("wrong", column=f"column {number}"),)) for number in range(1_010))
    assert (1_010, 20) == (rejects.count, len(rejects._groups))
    assert "990 rows for other reasons" == list(rejects.summary())[-1]


def test_a_bounded_file_of_rejects_has_the_first_ones_as_the_store_keeps_them(tmp_path: Path) -> None:
    row = Reject(1, "pso_live_" + "a" * 9_000, (Fault("wrong", column="id"),))
    with (tmp_path / "rejects").open("w+") as file:
        rejects = Rejects(file, bounded=True)
        rejects.add([row] * (MAX_KEPT_REJECTS - 1))
        rejects.add([row] * 3)
        file.seek(0)
        written = list(map(json.loads, file))
    assert [row.recorded(phrased)] * MAX_KEPT_REJECTS == written
    assert MAX_KEPT_REJECTS + 2 == rejects.count


def test_a_bounded_check_ends_at_a_number_of_rows_whether_they_are_valid_or_not(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MAX_BOUNDED_ROWS", 3_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for row, code in (('{"id":1}', 0), ("0", 3)):
        for rows, bounded in ((3_000, code), (3_001, 1)):
            check = partial(cli, "orders", "import", "-", "--dry-run", "--json", stdin=f"[{','.join([row] * rows)}]")
            assert (code, bounded) == (check().code, (done := check("--bounded")).code)
        assert "The file has more than 3,000 rows; `petstore orders import`" in done.error()["message"]
    assert [] == list(tmp_path.glob("petstore-scratch*"))
