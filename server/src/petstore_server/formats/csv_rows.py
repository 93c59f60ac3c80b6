"""CSV as spreadsheets and shops export it: three delimiters, quotes, blank lines, columns in any order."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO, NamedTuple

from petstore_server.domain.errors import InvalidField
from petstore_server.formats.conversions import Cell
from petstore_server.formats.kinds import Schema, T
from petstore_server.formats.rows import (
    MAX_ROW_BYTES,
    Block,
    Bulk,
    LineReader,
    Piece,
    Reject,
    Row,
    UnreadableFile,
    invalid,
    lines_of,
    not_utf8,
    reject,
    too_long,
)

BulkCells = Callable[[list[str | None], list[Sequence[str]]], list[T] | None]
"""Builds all records from the fields of the columns and the cells of each column; None where a row is unusual."""

_DELIMITERS = ",;\t"
_MAX_LINES = 100
"""Lines that one quoted cell may extend over; beyond that its quote counts as never closed."""
_CARRIAGE_RETURN = "has a carriage return (CR) outside of quotes; end each line with LF or CRLF"
_NOT_CLOSED = f"has a quote that is not closed within {_MAX_LINES} lines and {MAX_ROW_BYTES} bytes"

csv.field_size_limit(MAX_ROW_BYTES)  # of this process; every row is shorter


class Header(NamedTuple):
    """The field of each column (None: left out), and the delimiter."""

    fields: list[str | None]
    delimiter: str


def read_csv(stream: BinaryIO, schema: Schema[T], bulk: BulkCells[T] | None) -> Iterator[Piece[T]]:
    """The rows below the header. Empty cells are absent fields; blank rows are skipped.

    Raises UnreadableFile where the first row does not name the columns.
    """
    lines = LineReader(stream)
    header = _read_header(lines, schema)
    columns = [None if field is None else (field, schema.cells[field]) for field in header.fields]
    while (block := lines.block()) is not None:
        cells = _cells(block.data, header.delimiter, len(columns)) if bulk else None
        records = bulk(header.fields, cells) if bulk and cells else None
        if records is not None:
            yield Bulk(records, partial(_reread, block, columns, header.delimiter))
        else:
            yield list(_read_rows(lines, lines.give_back_block(block), columns, header.delimiter))


Columns = list[tuple[str, Cell] | None]


def _cells(data: bytes, delimiter: str, width: int) -> list[Sequence[str]] | None:
    """The cells of a block by column, or None unless each row is one line of valid UTF-8 with `width` cells."""
    if len(data) > MAX_ROW_BYTES:
        return None
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    if "\r" in text:
        return None
    lines = [line for line in text.split("\n") if line]
    if '"' in text:
        return _quoted_cells(lines, delimiter, width)
    # All cells are split at once, with each line end as one more cell.
    end = f"{delimiter}\n{delimiter}"
    cells = end.join(lines).split(delimiter)
    ends = cells[width :: width + 1]
    if len(cells) != (width + 1) * len(lines) - 1 or ends.count("\n") != len(ends):
        return None
    return [cells[column :: width + 1] for column in range(width)]


def _quoted_cells(lines: list[str], delimiter: str, width: int) -> list[Sequence[str]] | None:
    try:
        rows = list(csv.reader(lines, delimiter=delimiter, strict=True))
        columns: list[Sequence[str]] = list(zip(*rows, strict=True))
    except (csv.Error, ValueError):
        return None
    return columns if len(rows) == len(lines) and len(columns) == width else None


def _reread(block: Block, columns: Columns, delimiter: str) -> list[Row]:
    lines = LineReader(io.BytesIO(block.data), block.number)
    return [row for row in _read_rows(lines, None, columns, delimiter) if isinstance(row, Row)]


def _read_rows(lines: LineReader, end: int | None, columns: Columns, delimiter: str) -> Iterator[Row | Reject]:
    """The rows that begin before the line `end`; the last one may reach beyond it."""
    for number, line in lines_of(lines, end):
        if len(line) > MAX_ROW_BYTES:
            yield too_long(number, line)
            continue
        raw, texts = _split(line, lines, delimiter)
        if isinstance(texts, str):
            yield reject(number, None, f"The row {texts}.", raw)
        elif any(map(str.strip, texts)):
            yield _row(number, raw, texts, columns)


def _row(number: int, raw: bytes, texts: list[str], columns: Columns) -> Row | Reject:
    width = len(columns)
    if len(texts) < width or any(map(str.strip, texts[width:])):
        cells = f"{len(texts)} cell" + "s" * (len(texts) != 1)
        hint = "; name the others in the header, and leave them out with --ignore-column" if len(texts) > width else ""
        return reject(number, None, f"The row has {cells}; the header names {width} columns{hint}.", raw)
    fields: dict[str, object] = {}
    for column, text in zip(columns, texts, strict=False):
        if column is None or not text.strip():
            continue
        name, cell = column
        if not text.isascii() and any("\udc80" <= character <= "\udcff" for character in text):
            return not_utf8(number, raw)
        try:
            fields[name] = cell(text)
        except ValueError as error:
            return invalid(number, InvalidField(name, str(error), text), raw)
    return Row(number, raw, fields)


def _split(line: bytes, lines: LineReader, delimiter: str) -> tuple[bytes, list[str] | str]:
    """The row that begins with `line`: its bytes, and its cells or what is wrong with it ("has ...").

    Bytes that are not UTF-8 become lone surrogates.
    """
    raw = line.rstrip(b"\r\n")
    text = raw.decode("utf-8", "surrogateescape")
    if '"' in text:
        return _split_quoted(line, lines, delimiter)
    return raw, _CARRIAGE_RETURN if "\r" in text else text.split(delimiter)


def _split_quoted(line: bytes, lines: LineReader, delimiter: str) -> tuple[bytes, list[str] | str]:
    """A row with quotes may extend over several lines. If a quote is never closed, only its own line is rejected."""
    further: list[tuple[int, bytes]] = []

    def texts() -> Iterator[str]:
        yield line.decode("utf-8", "surrogateescape")
        size = len(line)
        for more in lines_of(lines):
            further.append(more)
            size += len(more[1])
            if len(further) > _MAX_LINES or size > MAX_ROW_BYTES:
                return
            yield more[1].decode("utf-8", "surrogateescape")

    try:
        cells = next(csv.reader(texts(), delimiter=delimiter, strict=True))
    except csv.Error as error:
        lines.give_back(further)
        return line.rstrip(b"\r\n"), _quoting_problem(error)
    return b"".join([line, *(more for _, more in further)]).rstrip(b"\r\n"), cells


def _quoting_problem(error: csv.Error) -> str:
    text = str(error)
    if text.startswith("new-line character"):
        return _CARRIAGE_RETURN
    return _NOT_CLOSED if text.startswith("unexpected end") else f"has quotes that do not match up ({text})"


def _read_header(lines: LineReader, schema: Schema[T]) -> Header:
    line, delimiter = _header_line(lines)
    if delimiter is None:
        delimiter = max(_DELIMITERS, key=line.decode("utf-8", "surrogateescape").count)
    raw, texts = _split(line, lines, delimiter)
    _check_text(raw)
    if isinstance(texts, str):
        raise UnreadableFile(f"The first line {texts}. It must name the columns.")
    names = [name.strip() for name in texts]
    while len(names) > 1 and not names[-1]:  # spreadsheets write columns that were used once and emptied
        names.pop()
    return Header(schema.header(names), delimiter)


def _header_line(lines: LineReader) -> tuple[bytes, str | None]:
    """The first line that is not blank, and the delimiter where a line `sep=;` before it names one (Excel)."""
    delimiter = None
    for _, line in lines_of(lines):
        if len(line) > MAX_ROW_BYTES:
            raise UnreadableFile(f"The first line is longer than {MAX_ROW_BYTES} bytes; it must name the columns.")
        text = line.decode("utf-8", "surrogateescape").strip("\r\n")
        if text.lower().startswith("sep=") and len(text) == len("sep=;") and not text.endswith('"'):
            delimiter = text[-1]
        elif text.strip():
            return line, delimiter
    raise UnreadableFile("The file is empty; its first line must name the columns.")


def _check_text(header: bytes) -> None:
    try:
        text = header.decode()
    except UnicodeDecodeError:
        raise UnreadableFile(
            "The first line is not valid UTF-8. Save the file as CSV in UTF-8, or give --encoding; "
            "programs on Windows often write windows-1252."
        ) from None
    if "\0" in text:
        raise UnreadableFile(
            "The first line contains zero bytes, as text in UTF-16 does; give --encoding utf-16-le or utf-16-be."
        )
