"""CSV as spreadsheets and shops export it: four delimiters, quotes, blank lines, columns in any order."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.remedies import Choice, Remedy, choose
from petstore_server.imports import files
from petstore_server.imports.bulk import csv_orders
from petstore_server.imports.files import Block, FilePart, UnreadableFile, line_blocks
from petstore_server.imports.rejects import Fault, Row, UnreadableRow
from petstore_server.imports.schema import Schema

_DELIMITERS = ",;\t|"
_NAMED_DELIMITER = re.compile(r'sep=([^"])', re.IGNORECASE)  # as Excel names it in a line before the header
_BLANK = f" \t\r\v\f{_DELIMITERS}"
_MAX_LINES = 100  # lines that one quoted cell may extend over; beyond that its quote counts as never closed
_WINDOWS = "windows-1252"
_MAX_SHOWN = 50  # characters of a name
_MAX_TITLES = 20  # lines above a header
_LIKE_A_HEADER = 2  # fields that a line names
_IS_VALUE = re.compile(r"-?\d+|\d{4}-\d{2}-\d{2}.*", re.ASCII)
_JSON = re.compile(rb"\s*(?:(\[)\s*(?:\{.*)?|\{\s*(?:\".*)?)", re.DOTALL)  # a first line of it
_CARRIAGE_RETURN = (
    "has a carriage return (CR) outside of quotes that is not followed by a line feed (LF); remove it, or end each "
    "line with LF or CRLF"
)
_NOT_CLOSED = f"has a quote that is not closed within {_MAX_LINES} lines and {files.MAX_ROW_BYTES} bytes"
_BALANCE = Remedy("close the quote, and double each quote within a cell")
_SWALLOWS = Fault("The row has a quote that is closed only after other rows.", _BALANCE)
_CUT_OFF = Fault(
    "The file ends within this row: it may have been cut off.",
    Remedy("import the whole file, or end its last line if it is whole"),
)
_EXPORT_AGAIN = Remedy("export the orders as CSV again")
_OTHERS = Remedy("name the others in the header, and {}", (Choice("ignore_column", "NAME"),))

csv.field_size_limit(files.MAX_ROW_BYTES)  # of this process; every row is shorter


class _Table(NamedTuple):
    """The columns of a file: the fields of each, none for those to leave out, and what is between their cells."""

    fields: list[tuple[str, ...]]
    delimiter: str
    schema: Schema[Any]

    def has_row(self, line: bytes) -> bool:
        """Whether the line by itself is a row: it has the width of the header, and a valid identifier in its place."""
        _, cells = _split(Block(1, [line], is_last=True), 0, self.delimiter)
        if isinstance(cells, str) or not self.fits(cells):
            return False
        texts = self.texts(cells)
        fields, faults = self.schema.read_cells({name: texts[name] for name in texts if name == "id"} or texts)
        return bool(texts) and not faults and (("id",) not in self.fields or type(fields.get("id")) is int)

    def texts(self, cells: list[str]) -> dict[str, str]:
        """The cells that are not empty by their fields."""
        columns = zip(self.fields, cells, strict=False)
        return {field: text for fields, text in columns if text.strip() for field in fields}

    def fits(self, cells: list[str]) -> bool:
        return len(cells) >= len(self.fields) and not any(map(str.strip, cells[len(self.fields) :]))


def read_csv(
    text: Iterable[bytes], schema: Schema[Any], is_cut: Callable[[], bool] = lambda: False
) -> Iterator[FilePart]:
    """The rows below the header; blank ones are skipped. Raises UnreadableFile if no row names the columns.

    `is_cut` returns, once the text has ended, whether its last line may have been cut off.
    """
    blocks = line_blocks(text)
    table, rest = _read_header(blocks, schema)
    for following in chain([Block(rest.number, [], rest.is_last)], blocks):
        block = Block(rest.number, rest.lines + following.lines, following.is_last)
        rest = block.after(len(block.lines))
        cut = block.is_last and is_cut()
        records = None if cut else csv_orders(block.lines, table.delimiter, table.fields, schema)
        if records is not None:
            yield FilePart(records, partial(_rows, block, table), block.numbers())
        else:
            rows, rest = _read_rows(block, table)
            if cut and rows and rows[-1].raw.split(b"\n")[-1] == block.lines[-1] and _ends_in_value(rows[-1], table):
                rows[-1] = rows[-1]._replace(cells=_CUT_OFF)
            yield FilePart(None, rows.copy)


def csv_fields(row: Row, schema: Schema[Any]) -> tuple[dict[str, Any], list[InvalidField]]:
    """The fields of a row, and what is wrong with others; empty cells are absent fields. Raises UnreadableRow."""
    if isinstance(row.cells, Fault):
        raise UnreadableRow(row.cells)
    if not row.raw.isascii():
        texts = {
            field: text for field, text in row.cells.items() if not any("\udc80" <= each <= "\udcff" for each in text)
        }
        if len(texts) < len(row.cells):
            raise UnreadableRow(files.NOT_UTF8, *schema.read_cells(texts))
    return schema.read_cells(row.cells)


def _rows(block: Block, table: _Table) -> list[Row]:
    return _read_rows(block, table)[0]


def _read_rows(block: Block, table: _Table) -> tuple[list[Row], Block]:
    """The rows of a block, and what remains of it: the lines from a row on that ends in the next block."""
    rows: list[Row] = []
    at, blank = 0, f" \t{table.delimiter}".encode("ascii", "ignore")
    while at < len(block.lines):
        if block.lines[at].strip(blank) in (b"", b"\r"):  # a spreadsheet may have written a million of these
            at += 1
            continue
        count, cells = _split(block, at, table.delimiter)
        if not count:
            break
        within = [line for line in range(at + 1, at + count) if table.has_row(block.lines[line])]
        if table.delimiter == "\t" and cells != files.TOO_LONG:
            plain = block.lines[at].decode("utf-8", "surrogateescape").rstrip("\r").split("\t")
            if within or isinstance(cells, str) or (table.fits(plain) and not table.fits(cells)):
                count, cells, within = 1, plain, []
        begin, raw = block.number + at, b"\n".join(block.lines[at : at + count]).rstrip(b"\r")
        if within:
            rows.append(Row(begin, raw, _SWALLOWS))
            fault = Fault(f"The row is within the quote that begins in line {begin}.", _BALANCE)
            rows += [Row(block.number + line, block.lines[line].rstrip(b"\r"), fault) for line in within]
        elif isinstance(cells, str) or any(map(str.strip, cells)):
            rows.append(Row(begin, raw, _named(cells, table)))
        at += count
    return rows, block.after(at)


def _named(cells: list[str] | str, table: _Table) -> dict[str, str] | Fault:
    """The cells that are not empty by their fields, or what is wrong with the row."""
    if isinstance(cells, str):
        return Fault(f"The row {cells}.")
    width = len(table.fields)
    if not table.fits(cells):
        count = f"{len(cells)} cell" + "s" * (len(cells) != 1)
        message = f"The row has {count}; the header names {width} columns."
        return Fault(message, _OTHERS if len(cells) > width else None)
    return table.texts(cells)


def _ends_in_value(row: Row, table: _Table) -> bool:
    """Whether the row ends within a value that would be another one with more digits."""
    if not isinstance(row.cells, dict):
        return False
    return any(row.cells.get(field, "")[-1:].isdigit() for field in table.fields[-1])


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
        problem = f"has quotes that do not match up ({error})"
        if str(error).startswith("new-line character"):
            problem = _CARRIAGE_RETURN
        elif str(error).startswith("unexpected end"):
            problem = _NOT_CLOSED
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


def _read_header(blocks: Iterator[Block], schema: Schema[Any]) -> tuple[_Table, Block]:
    """What the first line that has a name says, and the lines after it."""
    given = None
    for block in blocks:
        for at, line in enumerate(block.lines):
            text = line.decode("utf-8", "surrogateescape").strip("\r")
            if named := _NAMED_DELIMITER.fullmatch(text):
                given = named[1]
            elif text.strip(_BLANK):  # eBay begins with a row of empty cells
                delimiter = given or _delimiter(block, at, schema)
                count, cells = _split(block, at, delimiter)
                raw = b"\n".join(block.lines[at : at + count])
                try:
                    fields = schema.header(_names(cells, raw, schema))
                except UnreadableFile as error:
                    raise _explained(error, block, at, cells, delimiter, schema) from None
                return _Table(fields, delimiter, schema), block.after(at + count)
    raise UnreadableFile("The file is empty; its first line must name the columns.")


def _delimiter(block: Block, at: int, schema: Schema[Any]) -> str:
    """The delimiter with which the line names the most fields, or else has the most cells."""

    def quality(delimiter: str) -> tuple[int, int]:
        cells = _split(block, at, delimiter)[1]
        names = block.lines[at].decode("utf-8", "replace").split(delimiter) if isinstance(cells, str) else cells
        return schema.count_fields(names), len(names)

    return max(_DELIMITERS, key=quality)


def _names(cells: list[str] | str, raw: bytes, schema: Schema[Any]) -> list[str]:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        name = re.split(rb"[,;\t|\"]", raw[: error.start])[-1] + re.split(rb"[,;\t|\"]", raw[error.start :])[0]
        raise UnreadableFile("The first line is not valid UTF-8.", _other_encoding(name, schema)) from None
    if b"\0" in raw:
        if files.is_wide(schema.options.encoding) or not raw.strip(b"\0"):
            raise UnreadableFile("The first line contains zero bytes, as no text does.", _EXPORT_AGAIN)
        encoding = "utf-16-le" if raw[1::2].count(0) >= raw[::2].count(0) else "utf-16-be"
        problem = "The first line contains zero bytes, as text in UTF-16 does."
        raise UnreadableFile(problem, choose("encoding", encoding))
    if isinstance(cells, str):
        raise UnreadableFile(f"The first line {cells}. It must name the columns.")
    names = [" ".join(name.split()) for name in cells]  # so that messages name them as they can be typed
    while names and not names[-1]:  # spreadsheets write columns that were used once and emptied
        names.pop()
    return names


def _other_encoding(name: bytes, schema: Schema[Any]) -> Remedy:
    """The encoding of programs on Windows, with how it reads a name, or another one."""
    shown = name.decode(_WINDOWS, "replace").strip()[:_MAX_SHOWN].replace("{", "").replace("}", "")
    if schema.options.encoding is not None or not shown.isprintable():
        return choose("encoding", "NAME", "with that of the file")
    then = f"{{}} if '{shown}' is a column, or {{}} with another one"
    return Remedy(then, (Choice("encoding", _WINDOWS), Choice("encoding", "NAME")))


def _explained(
    error: UnreadableFile, block: Block, at: int, cells: list[str] | str, delimiter: str, schema: Schema[Any]
) -> UnreadableFile:
    """The error, or a better one if another line is the header, or no line is."""
    if match := _JSON.fullmatch(block.lines[at]):
        return UnreadableFile("The file is JSON, not CSV.", choose("format", "json" if match[1] else "jsonl"))
    for below in range(at + 1, min(at + _MAX_TITLES, len(block.lines))):
        names = _split(block, below, _delimiter(block, below, schema))[1]
        if not isinstance(names, str) and (schema.count_fields(names) >= _LIKE_A_HEADER or schema.is_of_shop(names)):
            line = block.number + below
            problem = f"The first line must name the columns, and it is line {line} that does."
            return UnreadableFile(problem, choose("without_lines", str(line)))
    if isinstance(cells, str) or schema.count_fields(cells) or not any(map(_IS_VALUE.fullmatch, cells)):
        return error
    columns = schema.own_header(cells) or ["COLUMN"] * len(cells)
    step = choose("header", delimiter.join(columns))
    if delimiter == "\t":
        step = choose("tab_header", r"\t".join(columns))
    return UnreadableFile("The first line must name the columns, and it is a row.", step)
