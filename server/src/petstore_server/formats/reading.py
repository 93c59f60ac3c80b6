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
_MARKS = {codecs.BOM_UTF8: None, codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_LONGEST_MARK = 4
_LENIENT = dict.fromkeys(("utf-16-le", "utf-16-be"), "surrogatepass")
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
        invalid in UTF-8, so that the row that contains them is rejected.
        """
        chunks = _as_utf8(self._chunks(), encoding)
        for chunk in chunks:
            self._begin += chunk
            if self._begin.strip():
                break
        return cast("BinaryIO", io.BufferedReader(_Chunks(self._begin, chunks), _CHUNK_BYTES))

    def format(self, given: str | None) -> str:
        """The file's format: the given one, else by the ending of its name, else by its first character."""
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


def _as_utf8(chunks: Iterator[bytes], encoding: str | None) -> Iterator[bytes]:
    begin = b""
    for chunk in chunks:
        begin += chunk
        if len(begin) >= _LONGEST_MARK:
            break
    if other := next((kind for mark, kind in _OTHER_FILES.items() if begin.startswith(mark)), None):
        raise UnreadableFile(f"The file is {other}.")
    mark, marked = next(((mark, name) for mark, name in _MARKS.items() if begin.startswith(mark)), (b"", encoding))
    chunks = itertools.chain([begin[len(mark) :]], chunks)
    return chunks if marked is None else _decoded(chunks, codecs.lookup(marked).name)


def _decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_LENIENT.get(encoding, "surrogateescape"))
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
    if decoder.getstate()[0]:
        yield b"\xff"  # half a character at the end of the file


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
