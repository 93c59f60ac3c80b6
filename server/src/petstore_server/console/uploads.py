"""Uploaded files: a form with a file is read piece by piece, and the file goes to the disk as it arrives."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

LARGEST_FILE = 100 * 1024 * 1024
"""Bytes of a file that is accepted."""

_LARGEST_FIELDS = 64 * 1024
_LARGEST_NAME = 200
_WRITE_BYTES = 1 << 20
_MOST_SKIPPED = 10 * LARGEST_FILE


class InvalidUpload(Exception):
    """The form or its file is not accepted: what is wrong, and the HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class Upload(NamedTuple):
    """What was received: the other fields of the form, and the file's name and bytes; no name if none was chosen."""

    fields: dict[str, str]
    name: str
    size: int


async def receive(
    chunks: AsyncIterator[bytes], content_type: str, path: Path, check: Callable[[dict[str, str]], None]
) -> Upload:
    """Read a form with one file, which is written to `path`. `check` gets the fields that came before the file.

    Raises InvalidUpload, what `check` raises, ClientDisconnect if the connection breaks, and OSError.
    """
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or b"boundary" not in options:
        raise InvalidUpload("The form cannot be read; go back and try again.")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
        try:
            return await _write(_Form(options[b"boundary"], check), chunks, file)
        except ClientDisconnect:
            raise
        except Exception:
            await _skip(chunks)
            raise


async def _write(form: "_Form", chunks: AsyncIterator[bytes], file: BinaryIO) -> Upload:
    async for chunk in chunks:
        form.write(chunk)
        if form.size > LARGEST_FILE:
            megabytes = LARGEST_FILE // (1024 * 1024)
            text = f"The file is larger than {megabytes} MB; `petstore orders import` reads larger ones."
            raise InvalidUpload(text, 413)
        await _flush(form, file, _WRITE_BYTES)
    if not form.ended:
        raise InvalidUpload("The upload broke off before its end; upload the file again.")
    await _flush(form, file, 1)
    return Upload(form.fields, form.name, form.size)


async def _skip(chunks: AsyncIterator[bytes]) -> None:
    """Read the rest of a form, up to a limit: a browser shows the response only after it has sent the whole form."""
    skipped = 0
    async for chunk in chunks:
        skipped += len(chunk)
        if skipped > _MOST_SKIPPED:
            return


async def _flush(form: "_Form", file: BinaryIO, least: int) -> None:
    if len(form.content) >= least:
        content, form.content = form.content, bytearray()
        await asyncio.to_thread(file.write, content)


class _Form:
    """The parts of a form as they arrive: the parser calls the methods whose names begin with `on_`."""

    def __init__(self, boundary: bytes, check: Callable[[dict[str, str]], None]) -> None:
        self.fields: dict[str, str] = {}
        self.name = ""
        self.size = 0
        self.content = bytearray()
        self.ended = False
        self._check = check
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition: dict[bytes, bytes] = {}
        self._value = bytearray()
        self._values_size = 0
        names = (
            *("on_part_begin", "on_header_field", "on_header_value", "on_header_end", "on_headers_finished"),
            *("on_part_data", "on_part_end", "on_end"),
        )
        callbacks = {name: getattr(self, name) for name in names}
        try:
            self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        except FormParserError as error:
            raise InvalidUpload("The form cannot be read; go back and try again.") from error

    def write(self, chunk: bytes) -> None:
        """Parse the next bytes. Raises InvalidUpload, and what the check raises."""
        try:
            self._parser.write(chunk)
        except (FormParserError, UnicodeDecodeError):
            raise InvalidUpload("The form cannot be read; go back and try again.") from None

    def on_part_begin(self) -> None:
        self._disposition = {}
        self._value = bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def on_header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = parse_options_header(bytes(self._header_value))[1]
        self._header_name, self._header_value = bytearray(), bytearray()

    def on_headers_finished(self) -> None:
        if self._is_file:
            self._check(self.fields)
            name = self._disposition[b"filename"].decode("utf-8", "replace")
            self.name = name.replace("\\", "/").rpartition("/")[2][-_LARGEST_NAME:]

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.size += end - start
            self.content += memoryview(data)[start:end]
            return
        self._values_size += end - start
        if self._values_size > _LARGEST_FIELDS:
            raise InvalidUpload("The form is too large.", 413)
        self._value += data[start:end]

    def on_part_end(self) -> None:
        if not self._is_file:
            name = self._disposition.get(b"name", b"").decode()
            self.fields.setdefault(name, self._value.decode().strip())

    def on_end(self) -> None:
        self.ended = True

    @property
    def _is_file(self) -> bool:
        return b"filename" in self._disposition
