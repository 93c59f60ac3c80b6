"""CSV as spreadsheets and shops export it: three delimiters, quotes, blank lines, columns in any order."""

import csv
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from petstore_server.domain.errors import Choice, InvalidField, Remedy, choose
from petstore_server.imports import files
from petstore_server.imports.files import Block, Fault, FilePart, Row, UnreadableFile, UnreadableRow, line_blocks
from petstore_server.imports.kinds import Schema, csv_orders

_DELIMITERS = ",;\t"
_NAMED_DELIMITER = re.compile(r'sep=([^"])', re.IGNORECASE)  # as Excel names it in a line before the header
_MAX_LINES = 100  # lines that one quoted cell may extend over; beyond that its quote counts as never closed
_SAVE_OR_DECODE = Remedy(
    "save the file as CSV in UTF-8, or {} with its encoding: programs on Windows often write windows-1252",
    (Choice("encoding", "NAME"),),
)
_UTF16 = choose("encoding", "utf-16-le", "or utf-16-be")
_CARRIAGE_RETURN = "has a carriage return (CR) outside of quotes; end each line with LF or CRLF"
_NOT_CLOSED = f"has a quote that is not closed within {_MAX_LINES} lines and {files.MAX_ROW_BYTES} bytes"
_OTHERS = Remedy("name the others in the header, and {}", (Choice("ignore_column", "NAME"),))

csv.field_size_limit(files.MAX_ROW_BYTES)  # of this process; every row is shorter


def read_csv(text: Iterable[bytes], schema: Schema[Any]) -> Iterator[FilePart]:
    """The rows below the header; blank ones are skipped. Raises UnreadableFile if no row names the columns."""
    blocks = line_blocks(text)
    fields, delimiter, rest = _read_header(blocks, schema)
    for following in chain([Block(rest.number, [], rest.is_last)], blocks):
        block = Block(rest.number, rest.lines + following.lines, following.is_last)
        rest = block.after(len(block.lines))
        records = csv_orders(block.lines, delimiter, fields, schema)
        if records is not None:
            yield FilePart(records, partial(_rows, block, fields, delimiter))
        else:
            rows, rest = _read_rows(block, fields, delimiter)
            yield FilePart(None, rows.copy)


def csv_fields(row: Row, schema: Schema[Any]) -> dict[str, Any]:
    """The fields of a row; empty cells are absent fields. Raises UnreadableRow, InvalidField."""
    if isinstance(row.cells, Fault):
        raise UnreadableRow(row.cells.message, remedy=row.cells.remedy)
    fields: dict[str, Any] = {}
    for name, text in row.cells.items():
        if not text.isascii() and any("\udc80" <= character <= "\udcff" for character in text):
            raise UnreadableRow(files.NOT_UTF8, remedy=files.OTHER_ENCODING)
        try:
            fields[name] = schema.cells[name](text)
        except ValueError as error:
            raise InvalidField(name, str(error), text, getattr(error, "remedy", None)) from None
    return fields


def _rows(block: Block, fields: list[str | None], delimiter: str) -> list[Row]:
    return _read_rows(block, fields, delimiter)[0]


def _read_rows(block: Block, fields: list[str | None], delimiter: str) -> tuple[list[Row], Block]:
    """The rows of a block, and what remains of it: the lines from a row on that ends in the next block."""
    rows: list[Row] = []
    at, blank = 0, f" \t{delimiter}".encode("ascii", "ignore")
    while at < len(block.lines):
        if block.lines[at].strip(blank) in (b"", b"\r"):  # a spreadsheet may have written a million of these
            at += 1
            continue
        count, cells = _split(block, at, delimiter)
        if not count:
            break
        if isinstance(cells, str) or any(map(str.strip, cells)):
            raw = b"\n".join(block.lines[at : at + count]).rstrip(b"\r")
            rows.append(Row(block.number + at, raw, _named(cells, fields)))
        at += count
    return rows, block.after(at)


def _named(cells: list[str] | str, fields: list[str | None]) -> dict[str, str] | Fault:
    """The cells that are not empty by their fields, or what is wrong with the row."""
    if isinstance(cells, str):
        return Fault(f"The row {cells}.")
    width = len(fields)
    if len(cells) < width or any(map(str.strip, cells[width:])):
        count = f"{len(cells)} cell" + "s" * (len(cells) != 1)
        message = f"The row has {count}; the header names {width} columns."
        return Fault(message, _OTHERS if len(cells) > width else None)
    return {field: text for field, text in zip(fields, cells, strict=False) if field and text.strip()}


def _split(block: Block, at: int, delimiter: str) -> tuple[int, list[str] | str]:
    """The row that begins with the line `at`: its number of lines, and its cells or what is wrong with it ("has ...").

    A row with quotes may extend over several lines: 0 if it may end in the next block. If a quote is never closed, the
    row is its first line. Bytes that are not UTF-8 become lone surrogates.
    """
    if len(block.lines[at]) > files.MAX_ROW_BYTES:
        return 1, files.TOO_LONG
    lines = block.lines[at : at + _MAX_LINES + 1]
    reader = csv.reader(_bounded(lines), delimiter=delimiter, strict=True)
    try:
        cells = next(reader)
    except csv.Error as error:
        problem = _quoting_problem(error)
    else:
        return reader.line_num, cells
    may_go_on = len(lines) <= _MAX_LINES and not block.is_last and sum(map(len, lines)) <= files.MAX_ROW_BYTES
    return 0 if problem == _NOT_CLOSED and may_go_on else 1, problem


def _bounded(lines: list[bytes]) -> Iterator[str]:
    size = 0
    for line in lines:
        size += len(line) + 1
        if size > files.MAX_ROW_BYTES + 1:  # the last line feed is not of the row
            return
        yield line.decode("utf-8", "surrogateescape") + "\n"


def _quoting_problem(error: csv.Error) -> str:
    text = str(error)
    if text.startswith("new-line character"):
        return _CARRIAGE_RETURN
    return _NOT_CLOSED if text.startswith("unexpected end") else f"has quotes that do not match up ({text})"


def _read_header(blocks: Iterator[Block], schema: Schema[Any]) -> tuple[list[str | None], str, Block]:
    """What the first line that is not blank says: the field of each column, the delimiter, and the lines after it."""
    delimiter = None
    for block in blocks:
        for at, line in enumerate(block.lines):
            text = line.decode("utf-8", "surrogateescape").strip("\r")
            if named := _NAMED_DELIMITER.fullmatch(text):
                delimiter = named[1]
            elif text.strip():
                delimiter = delimiter or max(_DELIMITERS, key=text.count)
                count, cells = _split(block, at, delimiter)
                names = _names(cells, b"\n".join(block.lines[at : at + count]))
                return schema.header(names), delimiter, block.after(at + count)
    raise UnreadableFile("The file is empty; its first line must name the columns.")


def _names(cells: list[str] | str, raw: bytes) -> list[str]:
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise UnreadableFile("The first line is not valid UTF-8.", _SAVE_OR_DECODE) from None
    if b"\0" in raw:
        raise UnreadableFile("The first line contains zero bytes, as text in UTF-16 does.", _UTF16)
    if isinstance(cells, str):
        raise UnreadableFile(f"The first line {cells}. It must name the columns.")
    names = [name.strip() for name in cells]
    while names and not names[-1]:  # spreadsheets write columns that were used once and emptied
        names.pop()
    return names
