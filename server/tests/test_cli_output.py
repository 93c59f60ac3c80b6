"""What commands print: tables and lines that fit a terminal, escapes, colours, plurals."""

import io
import json
import sys
import time
from collections import Counter
from contextlib import redirect_stdout
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from petstore_server.cli import output
from petstore_server.cli import usage as cli_usage
from petstore_server.cli.output import details, printable, table, wrapped
from petstore_server.domain.usage import Granularity
from testing.cli import CommandLine

COLUMNS = ("ID", "NOTE", "BANNED", "END")
ROWS = [("key_1", "a note that is long", None, "2026-11-21"), ("key_22", None, None, None)]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Has the width of the terminal; None if stdout is not one."""
    terminal = SimpleNamespace(width=None)
    monkeypatch.setattr(output, "terminal_width", lambda: terminal.width)
    return terminal


def test_a_narrow_terminal_gets_no_empty_columns_then_wrapped_cells(terminal: SimpleNamespace) -> None:
    terminal.width = 40
    assert "ID      NOTE                 END" == table(COLUMNS, ROWS, shrinks=["NOTE"]).splitlines()[0]
    terminal.width = 34
    lines = [
        "ID      NOTE            END",
        "key_1   a note that is  2026-11-21",
        "        long",
        "key_22  -               -",
    ]
    assert lines == table(COLUMNS, ROWS, shrinks=["NOTE"]).splitlines()


def test_a_terminal_that_is_too_narrow_for_the_table_gets_blocks(terminal: SimpleNamespace) -> None:
    terminal.width = 29
    assert "id:    key_1\nnote:  a note that is long\nend:   2026-11-21\n\nid:    key_22\nnote:  -\nend:   -" == table(
        COLUMNS, ROWS, shrinks=["NOTE"]
    )


def test_a_table_without_values_keeps_its_columns_on_a_narrow_terminal(terminal: SimpleNamespace) -> None:
    terminal.width = 10
    assert ["ID", "NOTE", "BANNED", "END"] == table(COLUMNS, []).split()


TITLES = "ABC"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=TITLES), max_size=30)


@example([("", "0000000", "000\x1f\x1f\x1f〰")], 20)  # wide characters in blocks of names and values
@example([("", "", "000000\x1f\x1f")], 20)
@example([("", "0000\x1f\x1f", "0000000000000"), ("0000\x1f\x1f", "", "")], 40)
@given(st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=4), st.integers(20, 200))
def test_a_table_with_cells_that_shrink_fits_any_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "terminal_width", lambda: width)
        text = table(TITLES, rows, shrinks=TITLES)
    assert all(output.columns(line) <= width for line in text.split("\n"))
    cells = Counter("".join(printable(cell) for row in rows for cell in row))
    assert [] == [character for character in cells - Counter(text) if not character.isspace()]  # nothing is lost


def test_wide_characters_take_two_columns(terminal: SimpleNamespace) -> None:
    assert "A     B\n東京  x\nab    y" == table(("A", "B"), [("東京", "x"), ("ab", "y")])


def test_long_values_are_broken_at_words_under_their_beginning(terminal: SimpleNamespace) -> None:
    terminal.width = 30
    assert "note:  some words that are too\n       long for a line" == details(
        [("note", "some words that are too long for a line")]
    )
    assert "short" == wrapped("short", 4)
    terminal.width = None
    assert "x " * 500 == wrapped("x " * 500, 4)


@given(st.text())
def test_no_text_reaches_a_terminal_with_a_control_character(text: str) -> None:
    shown = printable(text + "\udc7f\udc80\udcff\udd00\ud800")
    assert shown.endswith("\\udc7f\\x80\\xff\\udd00\\ud800")
    shown.encode()
    assert not set(shown) & {chr(number) for number in (*range(32), *range(0x7F, 0xA0))}


@given(st.text())
def test_json_is_escaped_and_means_the_same(text: str) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(stdout):
        output.write_json({"note": text})
    stdout.seek(0)
    line = stdout.buffer.read().decode()
    assert text == json.loads(line)["note"]
    assert not set(line[:-1]) & {chr(number) for number in (*range(32), *range(0x7F, 0xA0))}


def test_a_closed_stderr_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Mock(encoding="utf-8", write=Mock(side_effect=BrokenPipeError)))
    output.log_to_stderr("lost")


@pytest.mark.parametrize("account", [["acme"], []])
@pytest.mark.parametrize(("columns", "has_reasons"), [(80, False), (120, True), (60, False)])
def test_a_terminal_shows_a_bar_for_each_period(
    acme: CommandLine, monkeypatch: pytest.MonkeyPatch, account: list[str], columns: int, has_reasons: bool
) -> None:
    hour = Granularity.HOUR.start(time.time())
    for start, *counts in ((hour - 3600, 60, 20, 2), (hour, 20, 0, 0)):
        values = "(1, 3600, ?, 'listOrders', ?, ?, 0, 0, ?, 0, 0, 0, 0, 0, 0, 0, 0)"
        acme.execute(f"INSERT INTO usage_history VALUES {values}", start, *counts)
    for module in (cli_usage, output):
        monkeypatch.setattr(module, "terminal_width", lambda: columns)
    header, first, second = acme.must("usage", *account).out.splitlines()
    assert has_reasons == ("BANNED" in header)
    assert max(map(len, (header, first, second))) <= columns
    room = first.count("█") + first.count("░")
    if columns == 60 and not account:
        assert 0 == room  # the table needs all of it
        return
    assert 10 <= room <= 30
    assert (round(room * 0.75), round(room * 0.25)) == (first.count("█"), second.count("█"))
