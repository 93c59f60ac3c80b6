"""Import files: opening them, recognising their format, and decoding their text."""

import codecs
import io
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from petstore_server.formats.rows import UnreadableFile

FORMATS = ("jsonl", "json", "csv")
STDIN = "-"
_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv"}
_BY_FIRST_CHARACTER = {b"{": "jsonl", b"[": "json"}
_CHUNK_BYTES = 1 << 16
_MARKS = {
    codecs.BOM_UTF8: None,
    codecs.BOM_UTF32_LE: "utf-32-le",  # before the mark of UTF-16, which it begins with
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_LONGEST_MARK = 4
_BY_ZERO_BYTES: dict[tuple[bool, ...], str] = {
    (True, False, True, False): "utf-16-le",
    (False, True, False, True): "utf-16-be",
    (True, False, False, False): "utf-32-le",
    (False, False, False, True): "utf-32-be",
}
"""Which of the first four bytes differ from zero where the first characters are ASCII."""
_NEED_MARK = {"utf-16": "utf-16-le or utf-16-be", "utf-32": "utf-32-le or utf-32-be"}
_WIDE = ("utf-16", "utf-32")
_OTHER_FILES = {
    b"PK\x03\x04": "an Excel workbook or a zip archive; save the sheet as CSV in UTF-8, or unpack the archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save the sheet as CSV in UTF-8",
    b"\x1f\x8b": "compressed with gzip; unpack it, or pipe it: zcat FILE | petstore orders import -",
    b"%PDF": "a PDF document; export the orders as CSV",
    b"\x89PNG": "a picture; export the orders as CSV",
    b"\xff\xd8\xff": "a picture; export the orders as CSV",
}


class Source:
    """An open import file. `size` is its bytes, None where unknown; `position` is how many of them were read."""

    def __init__(self, file: BinaryIO, name: str, size: int | None) -> None:
        self._file = file
        self._name = name
        self._begin = b""
        self.size = size
        self.position = 0

    def stream(self, encoding: str | None = None) -> BinaryIO:
        """The file's text as UTF-8 without a byte order mark. Raises UnreadableFile where it is not a text file.

        `encoding` is that of a file without a byte order mark. Bytes that are invalid in it become bytes that are
        invalid in UTF-8, so that the row that contains them is rejected. Lines that end with CR, as older programs on
        a Mac write them, end with LF here.
        """
        chunks = _as_utf8(self._chunks(), encoding)
        for chunk in chunks:
            self._begin += chunk
            if len(self._begin) >= _CHUNK_BYTES or (self._begin.strip() and _ends_line(self._begin)):
                break
        if b"\n" not in self._begin and _ends_line(self._begin):
            self._begin = self._begin.replace(b"\r", b"\n")
            chunks = (chunk.replace(b"\r", b"\n") for chunk in chunks)
        return cast("BinaryIO", io.BufferedReader(_Chunks(self._begin, chunks), _CHUNK_BYTES))

    def format(self, given: str | None) -> str:
        """The file's format: the given one, else by the ending of its name, else by its first character.

        The first character is looked for in the first 64 KiB.
        """
        first = self._begin.lstrip()[:1]
        by_content = _BY_FIRST_CHARACTER.get(first, "csv" if first else "jsonl")
        return given or _ENDINGS.get(Path(self._name).suffix.lower()) or by_content

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._file.read(_CHUNK_BYTES):
            self.position += len(chunk)
            yield chunk


@contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open the file, or stdin for `-`. Raises OSError."""
    if name == STDIN:
        yield Source(unbuffered_stdin(), name, None)
        return
    path = Path(name)
    with path.open("rb") as file:
        yield Source(file, name, path.stat().st_size if path.is_file() else None)


def unbuffered_stdin() -> BinaryIO:
    """Stdin without Python's buffer, whose lock a thread that waits for input would hold until the process exits."""
    stdin = sys.stdin.buffer
    return cast("BinaryIO", getattr(stdin, "raw", stdin))


def _ends_line(text: bytes) -> bool:
    """Whether a line ends in the text: at LF, or at CR, unless it is the last byte and LF may follow."""
    return b"\n" in text or b"\r" in text[:-1]


def _as_utf8(chunks: Iterator[bytes], encoding: str | None) -> Iterator[bytes]:
    begin = b""
    for chunk in chunks:
        begin += chunk
        if len(begin) >= _LONGEST_MARK:
            break
    if other := next((kind for mark, kind in _OTHER_FILES.items() if begin.startswith(mark)), None):
        raise UnreadableFile(f"The file is {other}.")
    mark = next((mark for mark in _MARKS if begin.startswith(mark)), None)
    name = _MARKS[mark] if mark is not None else _unmarked(begin, encoding)
    chunks = itertools.chain([begin[len(mark or b"") :]], chunks)
    return chunks if name is None else _decoded(chunks, name)


def _unmarked(begin: bytes, encoding: str | None) -> str | None:
    """The encoding of a file without a byte order mark. Raises UnreadableFile where the given one cannot be right."""
    name = None if encoding is None else codecs.lookup(encoding).name
    likely = _BY_ZERO_BYTES.get(tuple(map(bool, begin[:_LONGEST_MARK])))
    if likely and name not in _BY_ZERO_BYTES.values():
        raise UnreadableFile(
            f"The file looks like {likely[:-3].upper()} without a byte order mark; give --encoding {likely}."
        )
    if name in _NEED_MARK:
        raise UnreadableFile(
            f"The file has no byte order mark, so {name} does not say how to read it; if it is in that encoding, "
            f"give --encoding {_NEED_MARK[name]}."
        )
    return name


def _decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_MARK_INVALID)
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeError as error:  # not for invalid bytes, but for a sequence that the decoder does not find the end of
        raise UnreadableFile(f"The file cannot be decoded as {encoding} ({error}); check --encoding.") from error


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    """A codec error handler: marks bytes that are not text by a lone surrogate, and keeps line ends among them."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    if error.encoding.startswith(_WIDE):
        return "\udcff", error.end
    text = error.object[error.start : error.end].decode("ascii", "surrogateescape")
    return ("\udcff" + text if text.isascii() else text), error.end


_MARK_INVALID = "petstore.mark_invalid"
codecs.register_error(_MARK_INVALID, _mark_invalid)


class _Chunks(io.RawIOBase):
    """Chunks of bytes as a stream."""

    def __init__(self, begin: bytes, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._rest = begin
        self._chunks = chunks

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
