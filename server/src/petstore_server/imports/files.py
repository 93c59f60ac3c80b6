"""Import files: opening and decoding them, their format, lines and rows, and the rows that are rejected."""

import codecs
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

from petstore_server.domain.errors import Choice, DomainError, InvalidField, InvalidInput, Remedy, choose, with_remedy
from petstore_server.domain.imports import MAX_KEPT_REJECTS, Rejected
from petstore_server.domain.texts import hide_keys
from petstore_server.imports.options import STDIN

BLOCK_ROWS = 1000
"""Rows that are read, and stored, at a time at most: storing them takes some 20 ms, so no cancel waits long (D6)."""

_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv"}
_BY_FIRST_CHARACTER = {b"{": "jsonl", b"[": "json", b"": "jsonl"}
_CHUNK_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 19
_MARKS = {
    codecs.BOM_UTF8: None,
    codecs.BOM_UTF32_LE: "utf-32-le",  # before the mark of UTF-16, which it begins with
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_MAX_MARK = 4
_BY_ZERO_BYTES: dict[tuple[bool, ...], str] = {
    (True, False, True, False): "utf-16-le",
    (False, True, False, True): "utf-16-be",
    (True, False, False, False): "utf-32-le",
    (False, False, False, True): "utf-32-be",
}
"""Which of the first four bytes differ from zero where the first characters are ASCII."""
_WIDE = ("utf-16", "utf-32")
_AS_CSV = Remedy("save the sheet as CSV in UTF-8")
_EXPORT = Remedy("export the orders as CSV")
_OTHER_FILES = {
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", _AS_CSV),
    b"\x1f\x8b": ("compressed with gzip", choose("unpacked", "zcat")),
    b"BZh": ("compressed with bzip2", choose("unpacked", "bzcat")),
    b"\xfd7zXZ\0": ("compressed with xz", choose("unpacked", "xzcat")),
    b"\x28\xb5\x2f\xfd": ("compressed with Zstandard", choose("unpacked", "zstdcat")),
    b"%PDF": ("a PDF document", _EXPORT),
    b"\x89PNG": ("a picture", _EXPORT),
    b"\xff\xd8\xff": ("a picture", _EXPORT),
}
_ZIP, _ZIPPED_TEXT = b"PK\x03\x04", re.compile(rb"\.(csv|tsv|txt|jsonl?|ndjson)$", re.IGNORECASE)
_FROM_MARKUP = Remedy("open it in a spreadsheet program, and save the sheet as CSV in UTF-8")
MAX_ROW_BYTES = 1 << 20  # a longer row is rejected, so that memory stays bounded whatever the file contains

SHOWN_BYTES = 1 << 16  # the bytes of a rejected row that are quoted at most

TOO_LONG = f"is longer than {MAX_ROW_BYTES} bytes; raw shows its beginning"
NOT_UTF8 = "The row is not valid UTF-8, or not in the encoding given."
OTHER_ENCODING = choose("encoding", "NAME", "with that of the file, such as windows-1252")

_MAX_KEPT_TEXT = 2000  # characters of each text of such a row
_MOST = {
    False: 20,
    True: 50,
}  # reasons that are shown: of other fields, and of the status, which has one for each value
MAX_NAME = 60  # of a column in reasons and their groups: a name may be as long as a row


_Reason = tuple[str | None, str, tuple[Choice, ...]]  # column, problem and the choices of the remedy
Phrase = Callable[[Choice], str]
"""Writes a choice in the words of one face, such as `give --timezone UTC`."""


def in_words(choice: Choice) -> str:
    return f"choose {choice.name.replace('_', ' ')} {choice.value}".rstrip()


class UnreadableFile(DomainError):
    """The file as a whole cannot be imported; nothing of it was, unless its decoder fails later in the file."""

    code = "unreadable_file"

    def __init__(self, message: str = "", remedy: Remedy | None = None) -> None:
        super().__init__(*[message] if message else [])
        self.remedy = remedy


class UnreadableRow(InvalidInput):
    """A row as a whole cannot be read. `problem` is the message without positions in the row."""

    field = None

    def __init__(self, message: str, problem: str | None = None, remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.problem = problem or message
        self.remedy = remedy


class Source:
    """An open import file. `size` is its bytes, None where unknown; `position` is how many of them were read."""

    def __init__(self, file: BinaryIO, name: str, size: int | None) -> None:
        self._file = file
        self._name = name
        self._begin = b""
        self._end = b""  # the last byte of the text
        self._opened = _state_of(file)
        self.size = size
        self.position = 0

    def text(self, encoding: str | None = None) -> Iterator[bytes]:
        """The file's text as UTF-8 without a byte order mark. Raises UnreadableFile if it is not a text file.

        `encoding` is that of a file without a byte order mark. Bytes that are invalid in it become bytes that are
        invalid in UTF-8, so that the row that contains them is rejected. Lines that end with CR, as older programs on
        a Mac write them, end with LF here.
        """
        chunks = _as_utf8(self._chunks(), encoding)
        for chunk in chunks:
            self._begin += chunk
            if len(self._begin) >= _CHUNK_BYTES or (self._begin.strip() and _ends_line(self._begin)):
                break
        if (begin := self._begin.lstrip()).startswith(b"<"):
            kind = "XML" if begin.startswith(b"<?xml") else "HTML"
            raise UnreadableFile(f"The file is {kind}, whatever its name says.", _FROM_MARKUP)
        chunks = chain([self._begin], chunks)
        if b"\n" not in self._begin and _ends_line(self._begin):
            chunks = (chunk.replace(b"\r", b"\n") for chunk in chunks)
        return self._followed(chunks)

    def has_changed(self) -> bool:
        """Whether the file was written since it was opened."""
        return self._opened is not None and self._opened != _state_of(self._file)

    def may_be_cut(self) -> bool:
        """Whether the text, of which all was read, has no line end at its end and may go on there."""
        if self._end in (b"", b"\n"):
            return False
        return self.has_changed() or (self._opened is None and _is_stream(self._file))

    def format(self, given: str | None) -> str:
        """The given format, else by the ending of the file's name, else by the first character that `text` has read."""
        return given or format_of(self._name) or _BY_FIRST_CHARACTER.get(self._begin.lstrip()[:1], "csv")

    def _followed(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._end = chunk[-1:] or self._end
            yield chunk

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._file.read(_CHUNK_BYTES):
            self.position += len(chunk)
            yield chunk


def _state_of(file: BinaryIO) -> tuple[int, int] | None:
    """What changes when a regular file is written; None for others."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):  # it is in memory
        return None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _is_stream(file: BinaryIO) -> bool:
    """Whether the file is a pipe or a socket, whose writer may have died."""
    try:
        mode = os.fstat(file.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def format_of(name: str) -> str | None:
    """The format that the ending of a file's name says, if it says one."""
    return _ENDINGS.get(Path(name).suffix.lower())


@contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open the file, or stdin for `-`. Raises OSError."""
    if name == STDIN:
        # Without Python's buffer, whose lock a thread that waits for input would hold until the process exits.
        stdin = sys.stdin.buffer
        yield Source(cast("BinaryIO", getattr(stdin, "raw", stdin)), name, None)
        return
    path = Path(name)
    # Without a buffer, too: closing one waits for the thread that reads, such as from a pipe whose writer lives on.
    with path.open("rb", buffering=0) as file:
        yield Source(cast("BinaryIO", file), name, path.stat().st_size if path.is_file() else None)


class Block(NamedTuple):
    """Lines of a text without their line feeds; `number` is that of the first, `is_last` at the end of the text."""

    number: int
    lines: list[bytes]
    is_last: bool

    def after(self, count: int) -> "Block":
        return Block(self.number + count, self.lines[count:], self.is_last)


def line_blocks(text: Iterable[bytes]) -> Iterator[Block]:
    """The lines in blocks of at most BLOCK_ROWS. Of an overlong line, only more than MAX_ROW_BYTES bytes are kept."""
    number, lines, size, rest = 1, list[bytes](), 0, b""
    for chunk in text:
        first, *further = chunk.split(b"\n")
        rest += first[: MAX_ROW_BYTES + 1 - len(rest)]
        if further:
            lines += [rest, *further[:-1]]
            rest = further[-1]
        size += len(chunk)
        if size >= _BLOCK_BYTES:
            yield from _parts(number, lines, is_last=False)
            number, lines, size = number + len(lines), [], 0
    yield from _parts(number, [*lines, rest] if rest else lines, is_last=True)


def _parts(number: int, lines: list[bytes], *, is_last: bool) -> Iterator[Block]:
    for at in range(0, max(len(lines), 1), BLOCK_ROWS):
        yield Block(number + at, lines[at : at + BLOCK_ROWS], is_last and at + BLOCK_ROWS >= len(lines))


def _ends_line(text: bytes) -> bool:
    """Whether a line ends in the text: at LF, or at CR, unless it is the last byte and LF may follow."""
    return b"\n" in text or b"\r" in text[:-1]


def _as_utf8(chunks: Iterator[bytes], encoding: str | None) -> Iterator[bytes]:
    begin = b""
    for chunk in chunks:
        begin += chunk
        if len(begin) >= _MAX_MARK:
            break
    if other := _other_kind(begin):
        kind, remedy = other
        raise UnreadableFile(f"The file is {kind}.", remedy)
    mark = next((mark for mark in _MARKS if begin.startswith(mark)), b"")
    name = _MARKS[mark] if mark else _unmarked(begin, encoding)
    chunks = chain([begin[len(mark) :]], chunks)
    return chunks if name is None else _decoded(chunks, name)


def _other_kind(begin: bytes) -> tuple[str, Remedy] | None:
    """What a file is that is not text, and what to do with it."""
    if not begin.startswith(_ZIP):
        return next((found for mark, found in _OTHER_FILES.items() if begin.startswith(mark)), None)
    first = begin[30 : 30 + int.from_bytes(begin[26:28], "little")]  # the name of the first file in it
    if _ZIPPED_TEXT.search(first):
        return "a zip archive", choose("unpacked", "unzip -p")
    if first == b"mimetype":
        return "an OpenDocument spreadsheet", _AS_CSV
    if first.startswith((b"xl/", b"docProps/", b"_rels/", b"[Content_Types]")):
        return "an Excel workbook", _AS_CSV
    return "an Excel workbook or a zip archive", Remedy("save the sheet as CSV in UTF-8, or unpack the archive")


def _unmarked(begin: bytes, encoding: str | None) -> str | None:
    """The encoding of a file without a byte order mark: zero bytes tell more than a name without a byte order."""
    name = encoding and codecs.lookup(encoding).name
    found = _BY_ZERO_BYTES.get(tuple(map(bool, begin[:_MAX_MARK])), name)
    return name if name in _BY_ZERO_BYTES.values() else found


def _decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_MARK_INVALID)
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
            if len(decoder.getstate()[0]) > MAX_ROW_BYTES:  # of UTF-7, which decodes it again with each chunk
                raise UnicodeError("a sequence without an end")  # noqa: TRY301 - it is the one message
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeError as error:  # not for invalid bytes, but for a sequence that the decoder does not find the end of
        problem = f"The file cannot be decoded as {encoding} ({error})."
        raise UnreadableFile(problem, choose("encoding", "NAME", "with that of the file")) from error


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    """A codec error handler: marks bytes that are not text by a lone surrogate, and keeps line ends among them."""
    invalid = cast("UnicodeDecodeError", error)  # nothing is encoded with this handler
    if invalid.encoding.startswith(_WIDE):
        return "\udcff", invalid.end
    return "\udcff" + invalid.object[invalid.start : invalid.end].decode("ascii", "ignore"), invalid.end


_MARK_INVALID = "petstore.mark_invalid"
codecs.register_error(_MARK_INVALID, _mark_invalid)


class Fault(NamedTuple):
    """What is wrong with a field, or with a row as a whole: in a sentence, and what to do about it.

    Faults are counted by their `problem`, which is the message without values and positions, and their choices.
    """

    message: str
    remedy: Remedy | None = None
    column: str | None = None
    problem: str = ""

    @property
    def reason(self) -> _Reason:
        choices = self.remedy.choices if self.remedy else ()
        return self.column and self.column[:MAX_NAME], self.problem or self.message, choices

    def text(self, phrase: Phrase) -> str:
        return with_remedy(self.message, self.remedy, phrase)


class Row(NamedTuple):
    """A row of the file; `line` is the physical line, from 1, on which it begins.

    `cells` are the texts of CSV by their fields, or what is wrong with the row.
    """

    line: int
    raw: bytes
    cells: dict[str, str] | Fault = {}  # noqa: RUF012 - not changed

    def reject(self, *errors: InvalidField | UnreadableRow) -> "Reject":
        """Reject the row; bytes that are not UTF-8 are quoted as \\xNN."""
        raw = self.raw[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
        faults = [Fault(error.message, error.remedy, error.field, error.problem) for error in errors]
        return Reject(self.line, raw, tuple(faults))


class Reject(NamedTuple):
    """A row that was not imported, and all that is wrong with it."""

    line: int
    raw: str
    faults: tuple[Fault, ...]

    @property
    def column(self) -> str | None:
        """The first field at fault, None for the whole row."""
        return self.faults[0].column

    def fields(self, phrase: Phrase) -> dict[str, object]:
        reason = " ".join(fault.text(phrase) for fault in self.faults)
        return {"line": self.line, "column": self.column, "reason": reason, "raw": self.raw}

    def recorded(self, phrase: Phrase) -> dict[str, object]:
        """The reject as the store keeps it: the beginning of a long row, and no API key."""
        return {
            name: hide_keys(value[:_MAX_KEPT_TEXT])[:_MAX_KEPT_TEXT] if isinstance(value, str) else value
            for name, value in self.fields(phrase).items()
        }


class FilePart(NamedTuple):
    """A part of a file: its records if all of them could be read at once, and its rows, which may be read again.

    `lines` returns the lines on which the records begin. `share` is how much of what was read of the file the parts so
    far contain, from 0 to 1.
    """

    records: list[Any] | None
    rows: Callable[[], list[Row]]
    lines: Callable[[], Sequence[int]] = tuple
    share: float = 1.0


class Rejects:
    """Collects what was rejected, in bounded memory. `phrase` writes the remedies."""

    def __init__(self, file: IO[str] | None = None, *, phrase: Phrase = in_words, bounded: bool = False) -> None:
        """Rows go to `file` as JSON Lines with `line`, `column`, `reason` and `raw`, if it is given.

        If `bounded`, these are the first ones, as the store keeps them: one byte of a file can be a rejected row.
        """
        self.phrase = phrase
        self._file = file
        self._bounded = bounded
        self._groups: dict[_Reason, tuple[int, int, Fault]] = {}  # how many, and the first one's line and fault
        self._others = 0  # rows none of whose faults is among those that are shown
        self.count = 0

    def add(self, rejects: Iterable[Reject]) -> None:
        """Write the rejects, and count their faults with those that have the same reason."""
        for reject in rejects:
            self.count += 1
            if self._file is not None and not (self._bounded and self.count > MAX_KEPT_REJECTS):
                fields = reject.recorded(self.phrase) if self._bounded else reject.fields(self.phrase)
                self._file.write(json.dumps(fields, ensure_ascii=False) + "\n")
            counted = [self._count(reject.line, fault) for fault in reject.faults]
            self._others += not any(counted)

    def _count(self, line: int, fault: Fault) -> bool:
        """Whether the fault is counted, because its reason is among the first ones."""
        count, first, shown = self._groups.get(fault.reason, (0, line, fault))
        is_status = fault.column == "status"
        if not count and sum((reason[0] == "status") is is_status for reason in self._groups) >= _MOST[is_status]:
            return False
        self._groups[fault.reason] = count + 1, first, shown
        return True

    def with_batch(self, rejects: Sequence[Reject]) -> Rejected:
        """What the record of the import gets with these, which are not added yet."""
        later = Rejects(phrase=self.phrase)
        later.count, later._others, later._groups = self.count, self._others, dict(self._groups)
        later.add(rejects)
        first = enumerate(rejects[: max(0, MAX_KEPT_REJECTS - self.count)], self.count)
        kept = [(number, reject.recorded(self.phrase)) for number, reject in first]
        return Rejected(len(rejects), kept, list(map(hide_keys, later.summary())))

    def summary(self) -> Iterator[str]:
        """One line for each reason, which are bounded in number: how many rows, the reason, the first row's line."""
        for count, line, fault in self._groups.values():
            reason = fault.text(self.phrase)
            yield f"line {line}: {reason}" if count == 1 else f"{count} rows: {reason[:-1]}, first in line {line}"
        if self._others:
            yield f"{self._others} rows for other reasons"

    def problems(self) -> list[dict[str, object]]:
        """The reasons of the summary as values, for programs."""
        return [
            {
                "rows": count,
                "line": line,
                "column": column,
                "problem": problem,
                "choices": [choice._asdict() for choice in choices],
            }
            for (column, problem, choices), (count, line, _) in self._groups.items()
        ]
