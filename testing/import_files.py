"""Import files in memory, read as an import reads them."""

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, cast

from petstore_server.cli.importing import phrased, scratch_store
from petstore_server.domain.orders import Order
from petstore_server.imports.files import Source
from petstore_server.imports.kinds import ORDERS
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.reading import Batch, read_batches
from petstore_server.imports.rejects import Reject, Rejects, Row
from petstore_server.imports.running import FileImport
from petstore_server.imports.schema import Schema
from petstore_server.store import Store
from testing.stores import BY


class Read(NamedTuple):
    """What an import would store, the rows that it comes from, and what it rejects."""

    orders: list[Order]
    rows: list[Row]
    rejects: list[Reject]


def batches(stream: BinaryIO, options: ReadOptions) -> Iterator[Batch[Order]]:
    return read_batches(Source(stream, "-", None), Schema(ORDERS, options))


def read(content: bytes, options: ReadOptions | str | None = None) -> Read:
    """Read orders; `options` may be a format only."""
    if not isinstance(options, ReadOptions):
        options = ReadOptions(options)
    return collect(batches(io.BytesIO(content), options))


def collect(found_batches: Iterable[Batch[Order]]) -> Read:
    """What all batches of a file contain."""
    found = Read([], [], [])
    for batch in found_batches:
        found.orders.extend(batch.records)
        found.rows.extend(batch.rows())
        found.rejects.extend(batch.rejects)
    return found


def reason_of(reject: Reject) -> str:
    """Why the row was rejected, as the command line says it."""
    return str(reject.fields(phrased)["reason"])


async def imported(
    store: Store, content: str, scratch: Store | None = None, options: ReadOptions | None = None
) -> FileImport[Order]:
    """Import a file of orders with these options; with `scratch` do a dry run."""
    rejects = Rejects(phrase=phrased)
    source = Source(io.BytesIO(content.encode()), "-", None)
    run = FileImport(ORDERS, source, options or ReadOptions(), rejects)
    async for _ in run.run(store, lambda: BY, scratch):
        pass
    return run


async def dry_run(store: Store, content: str, options: ReadOptions | None = None) -> FileImport[Order]:
    """What `imported` would do."""
    async with scratch_store() as scratch:
        return await imported(store, content, scratch, options)


class PiecewiseFile(io.BytesIO):
    """A file of which each read gives one piece, as a pipe may."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self._pieces = iter(pieces)

    def read(self, size: int | None = -1, /) -> bytes:
        return next(self._pieces, b"")


class GeneratedFile(io.RawIOBase):
    """A file that is generated while it is read, so that measured memory is only the reader's."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while len(self._rest) < len(buffer) and (piece := next(self._pieces, b"")):
            self._rest += piece
        given, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)


def generated(pieces: Iterator[bytes]) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(GeneratedFile(pieces)))
