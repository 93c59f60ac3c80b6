"""What a disk holds after a loss of power: files as they were flushed, and any part of what was not.

The model is that of a file system with ordered metadata: changes of directories reach the disk in order, and a flush of
a new file brings all of them there. Of the bytes that were written to a file since its last flush, any subset of the
sectors may be there. A flush that fails may have lost what it should have flushed, and a later one does not bring it
back.
"""

import random
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

SECTOR = 512
_HEAD = struct.Struct("<BHQI")


class Kind(IntEnum):
    """What happened to a file."""

    WRITE = 1
    TRUNCATE = 2
    SYNC = 3
    SYNC_FAILED = 4
    UNLINK = 5
    RENAME = 6
    LINK = 7
    SYNC_FOLDER = 8


class Event(NamedTuple):
    """One event of the log. `data` is the new name where a file gets one."""

    kind: Kind
    name: str
    offset: int = 0
    data: bytes = b""

    def encoded(self) -> bytes:
        name = self.name.encode()
        return _HEAD.pack(self.kind, len(name), self.offset, len(self.data)) + name + self.data


def read_events(log: bytes) -> Iterator[tuple[int, Event]]:
    """Each complete event of a log, with the place in the log at which it ends."""
    place = 0
    while place + _HEAD.size <= len(log):
        kind, name_length, offset, length = _HEAD.unpack_from(log, place)
        middle = place + _HEAD.size + name_length
        if middle + length > len(log):
            return
        name = log[place + _HEAD.size : middle].decode()
        place = middle + length
        yield place, Event(Kind(kind), name, offset, log[middle:place])


class _Inode:
    """A file's bytes on the disk, and what was done to it since the last flush."""

    def __init__(self, flushed: bytes = b"") -> None:
        self.flushed = bytearray(flushed)
        self.pending: list[Event] = []

    def flush(self) -> None:
        for event in self.pending:
            _apply(self.flushed, event)
        self.pending.clear()

    def after_loss(self, chance: random.Random) -> bytearray:
        """The bytes that a loss of power leaves, by chance."""
        content = bytearray(self.flushed)
        share = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        in_order = chance.randrange(len(self.pending) + 1) if chance.random() < 0.3 else None
        for number, event in enumerate(self.pending):
            if in_order is not None:
                share = 1.0 if number < in_order else 0.5 if number == in_order else 0.0
            for part in _sectors(event):
                if chance.random() < share:
                    _apply(content, part)
        return content


class Disk:
    """The files of one folder, as its events change them. `chance` decides what a failed flush has lost."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        """Everything in the folder now is on the disk."""
        self._chance = chance
        self._now = {path.name: _Inode(path.read_bytes()) for path in folder.iterdir() if _counts(path.name)}
        self._flushed = dict(self._now)
        self._pending: list[dict[str, _Inode | None]] = []

    def take(self, event: Event) -> None:
        """Follow one event."""
        kind, name, _, data = event
        if kind is Kind.SYNC_FOLDER:
            self._flush_names()
        elif not _counts(name):
            return
        elif kind in (Kind.WRITE, Kind.TRUNCATE):
            self._inode(name).pending.append(event)
        elif kind in (Kind.SYNC, Kind.SYNC_FAILED):
            self._flush(self._inode(name), failed=kind is Kind.SYNC_FAILED)
        elif kind is Kind.UNLINK:
            self._name({name: None})
        elif kind is Kind.LINK:
            self._name({data.decode(): self._inode(name)})
        else:
            self._name({data.decode(): self._inode(name), name: None})

    def image(self, target: Path, chance: random.Random) -> None:
        """Write the files as a loss of power now would leave them."""
        names = dict(self._flushed)
        for change in self._pending[: chance.randrange(len(self._pending) + 1)]:
            _rename(names, change)
        target.mkdir()
        for name, inode in names.items():
            (target / name).parent.mkdir(exist_ok=True)  # files that are being written are in a directory of their own
            (target / name).write_bytes(inode.after_loss(chance))

    def _flush(self, inode: _Inode, *, failed: bool) -> None:
        if failed:
            inode.flushed = inode.after_loss(self._chance)
            inode.pending.clear()
            return
        inode.flush()
        if inode not in self._flushed.values():
            self._flush_names()

    def _inode(self, name: str) -> _Inode:
        if name not in self._now:
            self._name({name: _Inode()})
        return self._now[name]

    def _name(self, change: dict[str, _Inode | None]) -> None:
        self._pending.append(change)
        _rename(self._now, change)

    def _flush_names(self) -> None:
        self._flushed = dict(self._now)
        self._pending.clear()


def _counts(name: str) -> bool:
    """The index of a log is memory that processes share; nothing reads it after a loss of power."""
    return not name.endswith("-shm")


def _rename(names: dict[str, _Inode], change: dict[str, _Inode | None]) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _sectors(event: Event) -> Iterator[Event]:
    """A write in its sectors; a change of the length as it is."""
    if event.kind is Kind.TRUNCATE:
        yield event
        return
    place, end = event.offset, event.offset + len(event.data)
    while place < end:
        border = min(end, (place // SECTOR + 1) * SECTOR)
        data = event.data[place - event.offset : border - event.offset]
        yield event._replace(offset=place, data=data)
        place = border


def _apply(content: bytearray, event: Event) -> None:
    if event.kind is Kind.TRUNCATE:
        del content[event.offset :]
        content.extend(bytes(event.offset - len(content)))
        return
    if len(content) < event.offset:
        content.extend(bytes(event.offset - len(content)))
    content[event.offset : event.offset + len(event.data)] = event.data
