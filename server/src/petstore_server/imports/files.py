"""Import files: opening and decoding them, their format, and their lines."""

import codecs
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, compress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from petstore_server.domain.errors import DomainError
from petstore_server.domain.remedies import Choice, Remedy, choose
from petstore_server.imports.options import STDIN
from petstore_server.imports.rejects import Fault, Row

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
    b"\x1f\x8b": ("compressed with gzip", choose("unpacked", "zcat FILE")),
    b"BZh": ("compressed with bzip2", choose("unpacked", "bzcat FILE")),
    b"\xfd7zXZ\0": ("compressed with xz", choose("unpacked", "xzcat FILE")),
    b"\x28\xb5\x2f\xfd": ("compressed with Zstandard", choose("unpacked", "zstdcat FILE")),
    b"7z\xbc\xaf": ("a 7z archive", choose("unpacked", "7z e -so FILE")),
    b"Rar!": ("a RAR archive", choose("unpacked", "unrar p -inul FILE")),
    b"SQLite format 3\0": ("an SQLite database", _EXPORT),
    b"PAR1": ("a Parquet file", _EXPORT),
    b"%PDF": ("a PDF document", _EXPORT),
    b"\x89PNG": ("a picture", _EXPORT),
    b"\xff\xd8\xff": ("a picture", _EXPORT),
}
_IN_TAR = slice(257, 262)  # where an archive has its mark
_ZIP, _ZIPPED_TEXT = b"PK\x03\x04", re.compile(rb"\.(csv|tsv|txt|jsonl?|ndjson)$", re.IGNORECASE)
_PLAIN_NAME = re.compile(rb"\w[\w. ()/+-]*", re.ASCII)  # without wildcards
_FROM_MARKUP = Remedy("open it in a spreadsheet program, and save the sheet as CSV in UTF-8")
MAX_ROW_BYTES = 1 << 20  # a longer row is rejected, so that memory stays bounded whatever the file contains

TOO_LONG = f"is longer than {MAX_ROW_BYTES} bytes; raw shows its beginning"
NOT_UTF8 = Fault(
    "The row is not valid UTF-8, or not in the encoding given.",
    choose("encoding", "NAME", "with that of the file, such as windows-1252"),
)


class UnreadableFile(DomainError):
    """The file as a whole cannot be imported; nothing of it was, unless its decoder fails later in the file."""

    code = "unreadable_file"

    def __init__(self, message: str = "", remedy: Remedy | None = None) -> None:
        super().__init__(*[message] if message else [])
        self.remedy = remedy


class Source:
    """An open import file. `size` is its bytes, None where unknown; `position` is how many of them were read."""

    def __init__(self, file: BinaryIO, name: str, size: int | None) -> None:
        self._file = file
        self._name = name
        self._begin = b""
        self._end = b""  # the last byte of the text
        self._opened = _status_of(file)
        self.size = size
        self.position = 0
        self.encoding: str | None = None  # UTF-16 or UTF-32, as iconv names it, if the text is in that
        self.has_utf8_mark = False  # whether a byte order mark of UTF-8 is before the text
        self.has_cr_lines = False  # whether lines end with CR
        self.is_utf8 = False  # valid UTF-8 with other characters than ASCII, although another encoding was given

    def text(self, encoding: str | None = None) -> Iterator[bytes]:
        """The file's text as UTF-8 without a byte order mark. Raises UnreadableFile if it is not a text file.

        `encoding` is that of a file without a byte order mark. Bytes that are invalid in it become bytes that are
        invalid in UTF-8, so that the row that contains them is rejected. Lines that end with CR, as older programs on
        a Mac write them, end with LF here.
        """
        raw = self._chunks()
        if encoding is not None and codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig"):
            raw = self._compared(raw)
        chunks, self.encoding, self.has_utf8_mark = _as_utf8(raw, encoding)
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
            self.has_cr_lines = True
        return self._followed(chunks)

    def is_at(self, path: Path) -> bool:
        """Whether the path names this file, also where it is on stdin."""
        opened = self._opened
        if opened is None or (self._name == STDIN and not stat.S_ISREG(opened.st_mode)):
            return False
        return path.exists() and os.path.samestat(path.stat(), opened)

    def has_changed(self) -> bool:
        """Whether the file, if it is a regular one, was written since it was opened."""
        then, now = self._opened, _status_of(self._file)
        if then is None or now is None or not stat.S_ISREG(then.st_mode):
            return False
        return (then.st_size, then.st_mtime_ns) != (now.st_size, now.st_mtime_ns)

    def may_be_cut(self) -> bool:
        """Whether the text, of which all was read, has no line end at its end and may go on there."""
        if self._end in (b"", b"\n") or self._opened is None:
            return False
        mode = self._opened.st_mode
        return self.has_changed() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)  # whose writer may have died

    def format(self, given: str | None) -> str:
        """The given format, else by the ending of the file's name, else by the first character that `text` has read."""
        return given or format_of(self._name) or _BY_FIRST_CHARACTER.get(self._begin.lstrip()[:1], "csv")

    def _followed(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._end = chunk[-1:] or self._end
            yield chunk

    def _compared(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks; notes at the end whether they are UTF-8 without a byte order mark."""
        decoder, begin, is_ascii, is_valid = codecs.getincrementaldecoder("utf-8")(), b"", True, True
        for chunk in chunks:
            begin = begin or chunk
            is_ascii = is_ascii and chunk.isascii()
            is_valid = is_valid and _is_valid(decoder, chunk)
            yield chunk
        is_valid = is_valid and _is_valid(decoder, b"", final=True)
        self.is_utf8 = is_valid and not is_ascii and not begin.startswith(codecs.BOM_UTF8)

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._file.read(_CHUNK_BYTES):
            self.position += len(chunk)
            yield chunk


def _is_valid(decoder: codecs.IncrementalDecoder, chunk: bytes, *, final: bool = False) -> bool:
    """Whether the bytes can be decoded after those before."""
    try:
        decoder.decode(chunk, final)
    except UnicodeDecodeError:
        return False
    return True


def _status_of(file: BinaryIO) -> os.stat_result | None:
    """None for a file in memory."""
    try:
        return os.fstat(file.fileno())
    except (OSError, ValueError):
        return None


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

    def numbers(self) -> list[int]:
        """The numbers of the lines that are not blank."""
        every = range(self.number, self.number + len(self.lines))
        return list(compress(every, map(bytes.strip, self.lines)))


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


def _as_utf8(chunks: Iterator[bytes], encoding: str | None) -> tuple[Iterator[bytes], str | None, bool]:
    """The text without its byte order mark.

    Also UTF-16 or UTF-32 as iconv names it, if the text was in that, and whether it had the mark of UTF-8.
    """
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
    if name is None:
        return chunks, None, bool(mark)
    order = "" if mark else name[-2:]  # iconv takes it from a mark, which it leaves out then
    return _decoded(chunks, name), f"{name[:6]}{order}" if name in _BY_ZERO_BYTES.values() else None, False


def _other_kind(begin: bytes) -> tuple[str, Remedy] | None:
    """What a file is that is not text, and what to do with it."""
    if begin[_IN_TAR] == b"ustar":
        return "a tar archive", choose("unpacked", "tar -xOf FILE")
    if not begin.startswith(_ZIP):
        return next((found for mark, found in _OTHER_FILES.items() if begin.startswith(mark)), None)
    first = begin[30 : 30 + int.from_bytes(begin[26:28], "little")]  # the name of the first file in it
    if _ZIPPED_TEXT.search(first):  # a Mac adds another file for each
        name = f" {shlex.quote(first.decode())}" if _PLAIN_NAME.fullmatch(first) else ""
        return "a zip archive", choose("unpacked", f"unzip -p FILE{name}")
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


def is_wide(encoding: str | None) -> bool:
    """Whether the encoding of this name is UTF-16 or UTF-32."""
    return encoding is not None and codecs.lookup(encoding).name.startswith(_WIDE)


def _decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_MARK_INVALID)
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
            if len(decoder.getstate()[0]) > MAX_ROW_BYTES:  # of UTF-7, which decodes it again with each chunk
                raise UnicodeError  # noqa: TRY301 - it is the one message
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeError as error:  # not for invalid bytes: the end of a sequence is missing, or the order of bytes
        problem, remedy = "a sequence without an end", choose("encoding", "NAME", "with that of the file")
        if encoding in _WIDE:
            problem = "no byte order mark"
            choices = tuple(Choice("encoding", f"{encoding}-{order}") for order in ("le", "be"))
            remedy = Remedy("{} or {}, or leave the encoding out", choices)
        raise UnreadableFile(f"The file cannot be decoded as {encoding}: it has {problem}.", remedy) from error


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    """A codec error handler: marks bytes that are not text by a lone surrogate, and keeps line ends among them."""
    invalid = cast("UnicodeDecodeError", error)  # nothing is encoded with this handler
    if invalid.encoding.startswith(_WIDE):
        return "\udcff", invalid.end
    return "\udcff" + invalid.object[invalid.start : invalid.end].decode("ascii", "ignore"), invalid.end


_MARK_INVALID = "petstore.mark_invalid"
codecs.register_error(_MARK_INVALID, _mark_invalid)


class FilePart(NamedTuple):
    """A part of a file: its records if all of them could be read at once, and its rows, which may be read again.

    `lines` are those on which the records begin. `share` is how much of what was read of the file the parts so far
    contain, from 0 to 1.
    """

    records: list[Any] | None
    rows: Callable[[], list[Row]]
    lines: Sequence[int] = ()
    share: float = 1.0
