"""CSV as spreadsheets leave it: any of three delimiters, quotes, blank lines, columns in any order."""

import csv
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from petstore_server.formats.rows import (
    MAX_ROW_BYTES,
    Reject,
    Row,
    UnreadableFile,
    not_utf8,
    numbered_lines,
    reject,
    too_long,
)

Cell = Callable[[str], Any]
"""Turns the text of a cell into a value; text that it cannot turn is returned as it is, for the domain to refuse."""

_DELIMITERS = ",;\t"
_MAX_LINES = 100
"""Lines that one quoted cell may reach over; beyond that its quote is taken for one that was never closed."""

_PLAIN_DIGITS = re.compile(r"0|-?[1-9][0-9]{0,99}", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def integer_cell(text: str) -> int | str:
    """A whole number in the plain form `0|-?[1-9][0-9]*`, of any size: whether it fits is for the domain to say."""
    return int(text) if _PLAIN_DIGITS.fullmatch(text) else text


def boolean_cell(text: str) -> bool | str:
    """true or false in any case: spreadsheets write TRUE and FALSE."""
    return _BOOLEANS.get(text.lower(), text)


def text_cell(text: str) -> str:
    """The text as it is."""
    return text


def read_csv(stream: BinaryIO, cells: Mapping[str, Cell]) -> Iterator[Row | Reject]:
    """One record a row, of the columns named in `cells`; empty cells are absent, blank rows passed over.

    Raises UnreadableFile where the first line names no columns, or others.
    """
    lines = _Lines(stream)
    header = _read_header(lines, cells)
    columns = [(name, cells[name]) for name in header.names]
    width = len(columns)
    for number, line in lines:
        row = _split(number, line, lines, header.delimiter)
        if isinstance(row, Reject):
            yield row
            continue
        raw, texts = row
        if len(texts) == width:
            fields = {name: cell(text) for (name, cell), text in zip(columns, texts, strict=True) if text}
            if fields:
                yield Row(number, raw, fields)
        elif any(map(str.strip, texts)):
            counted = f"{len(texts)} cell" + "s" * (len(texts) != 1)
            yield reject(number, None, f"The row has {counted}; the header names {width} columns.", raw)


class _Header(NamedTuple):
    names: list[str]
    delimiter: str


class _Lines:
    """The physical lines; those that turn out not to belong to a row can be given back."""

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = numbered_lines(stream)
        self._returned: deque[tuple[int, bytes]] = deque()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        while True:
            while self._returned:
                yield self._returned.popleft()
            line = next(self._lines, None)
            if line is None:
                return
            yield line

    def give_back(self, lines: list[tuple[int, bytes]]) -> None:
        self._returned.extendleft(reversed(lines))


def _split(number: int, line: bytes, lines: _Lines, delimiter: str) -> tuple[bytes, list[str]] | Reject:
    """The row that begins with `line`: its bytes and its cells."""
    if len(line) > MAX_ROW_BYTES:
        return too_long(number, line)
    raw = line.rstrip(b"\r\n")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return not_utf8(number, error, raw)
    if '"' not in text:
        return raw, text.split(delimiter)
    return _split_quoted(number, line, lines, delimiter)


def _split_quoted(number: int, line: bytes, lines: _Lines, delimiter: str) -> tuple[bytes, list[str]] | Reject:
    """A row with quotes may reach over several lines; one whose quote is never closed is rejected by itself."""
    further: list[tuple[int, bytes]] = []

    def texts() -> Iterator[str]:
        yield line.decode()
        for more in lines:
            further.append(more)
            if len(further) > _MAX_LINES:
                return
            yield more[1].decode()

    try:
        cells = next(csv.reader(texts(), delimiter=delimiter, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        lines.give_back(further)
        return reject(number, None, f"The quotes of the row do not match up ({error}).", line.rstrip(b"\r\n"))
    return b"".join([line, *(more for _, more in further)]).rstrip(b"\r\n"), cells


def _read_header(lines: _Lines, cells: Mapping[str, Cell]) -> _Header:
    text, delimiter = _header_text(lines)
    if delimiter is None:
        delimiter = max(_DELIMITERS, key=text.count)
    names = [name.strip() for name in next(csv.reader([text], delimiter=delimiter))]
    if len(names) > 1 and not names[-1]:
        raise UnreadableFile("The header names no column in its last place; remove the empty column.")
    unknown = [name for name in names if name not in cells]
    wanted = ", ".join(cells)
    if unknown:
        listed = ", ".join(f"'{name[:50]}'" for name in unknown[:5])
        raise UnreadableFile(f"The first line must name the columns ({wanted}); it holds {listed}.")
    if len(set(names)) < len(names):
        raise UnreadableFile("The first line names a column twice.")
    if "id" not in names:
        raise UnreadableFile("The first line names no column 'id'; every record needs one.")
    return _Header(names, delimiter)


def _header_text(lines: _Lines) -> tuple[str, str | None]:
    """The first line that is not blank, and the delimiter where a line `sep=;` before it names one (Excel)."""
    delimiter = None
    for _, line in lines:
        try:
            text = line[:MAX_ROW_BYTES].decode().strip("\r\n")
        except UnicodeDecodeError:
            raise UnreadableFile("The first line is not valid UTF-8; save the file as CSV in UTF-8.") from None
        if text.lower().startswith("sep=") and len(text) == len("sep=;"):
            delimiter = text[-1]
        elif text.strip():
            return text, delimiter
    raise UnreadableFile("The file is empty; its first line must name the columns.")
