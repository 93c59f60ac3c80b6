"""Import files: where records come from, one row at a time, whatever wrote the file.

Nothing is lost silently: whatever is read ends up as a Row or as a Reject that says why it is none.
"""

import codecs
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from petstore_server.formats.csv_rows import Cell, read_csv
from petstore_server.formats.json_rows import read_json_array, read_json_lines
from petstore_server.formats.rows import Reject, Row

FORMATS = ("jsonl", "json", "csv")
STDIN = "-"
_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv"}
_BY_FIRST_CHARACTER = {b"{": "jsonl", b"[": "json"}
_CHUNK_BYTES = 1 << 18
_UTF16_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def format_by_ending(name: str) -> str | None:
    """The format that a file's name tells, if it does."""
    return _ENDINGS.get(Path(name).suffix.lower())


class Source:
    """An open import file. `size` is its bytes where that is known, `position` how many of them were read."""

    def __init__(self, stream: BinaryIO, name: str, size: int | None) -> None:
        self._stream = stream
        self._name = name
        self.size = size
        self.position = 0

    def rows(self, file_format: str | None, cells: Mapping[str, Cell]) -> Iterator[Row | Reject]:
        """The rows, of records with the fields named in `cells`.

        The format is `file_format`, else the one that the file's ending tells, else the one of its first character.
        Raises UnreadableFile where the file as a whole is none of it.
        """
        chunks = _as_utf8(self._chunks())
        begin = b""
        for chunk in chunks:
            begin += chunk
            if begin.strip():
                break
        raw: io.RawIOBase = _Chunks(begin, chunks)
        text = cast("BinaryIO", io.BufferedReader(raw, _CHUNK_BYTES))
        chosen = file_format or format_by_ending(self._name)
        match chosen or _BY_FIRST_CHARACTER.get(begin.lstrip()[:1], "csv" if begin.strip() else "jsonl"):
            case "csv":
                return read_csv(text, cells)
            case "json":
                return read_json_array(text)
            case _:
                return read_json_lines(text)

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._stream.read(_CHUNK_BYTES):
            self.position += len(chunk)
            yield chunk


@contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open the file, or stdin for `-`. Raises OSError."""
    if name == STDIN:
        yield Source(sys.stdin.buffer, name, None)
        return
    path = Path(name)
    with path.open("rb") as stream:
        yield Source(stream, name, path.stat().st_size if path.is_file() else None)


def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks without their byte order mark, and as UTF-8 where the mark is UTF-16's.

    What is no valid UTF-16 becomes bytes that are no valid UTF-8, so that the row they stand in is rejected.
    """
    begin = b""
    for chunk in chunks:
        begin += chunk
        if len(begin) >= len(codecs.BOM_UTF8):
            break
    encoding = _UTF16_MARKS.get(begin[:2])
    if encoding is None:
        yield begin.removeprefix(codecs.BOM_UTF8)
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    yield decoder.decode(begin[2:]).encode("utf-8", "surrogatepass")
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
