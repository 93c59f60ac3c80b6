"""What records every write and flush of the files of a `petstore`, and makes the faults that a caller asks for.

The program itself is unchanged: it uses SQLite's interface to files, which is another one here.
"""

import errno
import importlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from torture.disk import Event, Kind

_BASE = "unix"


@dataclass
class Options:
    """What is recorded, and which faults there are.

    These are `folder`, whose files are recorded; `log`, the file of the events; `flush`, false for a program that
    flushes nothing; `failing`, a file during whose existence every flush fails; `clock`, a file with seconds to be
    added to the time; `constants`, other values of the program's constants, such as shorter pauses, by their full
    names.
    """

    folder: str = ""
    log: str = ""
    flush: bool = True
    failing: str = ""
    clock: str = ""
    constants: dict[str, Any] = field(default_factory=dict)


class Recorder:
    """Appends events of the files in a folder to a log. Several processes may share one log."""

    def __init__(self, options: Options) -> None:
        self._folder = os.path.realpath(options.folder)
        self._log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._failing = options.failing
        self.flushes = options.flush

    def note(self, kind: Kind, path: str, offset: int = 0, data: bytes = b"") -> None:
        """Append the event, if it is about a file of the folder."""
        if path.startswith(f"{self._folder}/"):
            os.write(self._log, Event(kind, path[len(self._folder) + 1 :], offset, data).encoded())

    def place(self, path: Any, directory: int | None) -> str:
        """The whole path of a file, which may be relative to the descriptor of a directory."""
        return os.path.join("" if directory is None else os.readlink(f"/proc/self/fd/{directory}"), path)

    def new_name(self, path: Any, directory: int | None) -> bytes:
        """The name that a file gets, as it is relative to the folder."""
        return os.path.relpath(self.place(path, directory), self._folder).encode()

    def flush(self, path: str, flush: Callable[[], None]) -> None:
        """Flush, or fail, or do neither. Raises OSError."""
        if self._failing and os.path.exists(self._failing):
            self.note(Kind.SYNC_FAILED, path)
            raise OSError(errno.EIO, "the disk reports an error")
        if self.flushes:
            flush()
            self.note(Kind.SYNC, path)


class RecordedFiles(apsw.VFS):
    """SQLite's files, recorded; the default from then on."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__("recorded", _BASE, makedefault=True)
        self._recorder = recorder

    def xOpen(self, name: Any, flags: list[int]) -> "RecordedFile":  # noqa: N802 - SQLite's name
        return RecordedFile(self._recorder, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self._recorder.note(Kind.UNLINK, filename)


class RecordedFile(apsw.VFSFile):
    """One open file."""

    def __init__(self, recorder: Recorder, name: Any, flags: list[int]) -> None:
        super().__init__(_BASE, name, flags)
        self._recorder = recorder
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._recorder.note(Kind.WRITE, self._path, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._recorder.note(Kind.TRUNCATE, self._path, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        flush = super().xSync
        try:
            self._recorder.flush(self._path, lambda: flush(flags))
        except OSError as error:
            raise apsw.IOError(str(error)) from error


def record(recorder: Recorder) -> RecordedFiles:
    """Record SQLite's files, and what Python itself does to files, from now on."""
    link, rename, unlink, fsync = os.link, os.rename, os.unlink, os.fsync

    def linked(source: Any, target: Any, **options: Any) -> None:
        link(source, target, **options)
        named(Kind.LINK, source, target, options)

    def renamed(source: Any, target: Any, **options: Any) -> None:
        rename(source, target, **options)
        named(Kind.RENAME, source, target, options)

    def named(kind: Kind, source: Any, target: Any, options: dict[str, Any]) -> None:
        place = recorder.place(source, options.get("src_dir_fd"))
        recorder.note(kind, place, data=recorder.new_name(target, options.get("dst_dir_fd")))

    def unlinked(path: Any, **options: Any) -> None:
        unlink(path, **options)
        recorder.note(Kind.UNLINK, recorder.place(path, options.get("dir_fd")))

    def flushed(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if Path(path).is_dir():
            fsync(descriptor)
            recorder.note(Kind.SYNC_FOLDER, f"{path}/.")
        else:
            recorder.flush(path, lambda: fsync(descriptor))

    replaced: dict[str, Any] = {"link": linked, "rename": renamed, "unlink": unlinked, "fsync": flushed}
    for name, function in replaced.items():
        setattr(os, name, function)
        os.supports_dir_fd.add(function)  # as those that they replace; shutil asks
    return RecordedFiles(recorder)


def shift_clock(file: str) -> None:
    """Add what the file says to the time, from now on; read again four times a second."""
    real, shift, read_at = time.time, 0.0, 0.0

    def shifted() -> float:
        nonlocal shift, read_at
        now = real()
        if now >= read_at:
            shift, read_at = float(Path(file).read_text() or 0), now + 0.25
        return now + shift

    time.time = shifted


def replace_constants(constants: Mapping[str, Any]) -> None:
    """Give constants other values, from now on."""
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        getattr(importlib.import_module(module), constant)  # which has this name
        setattr(importlib.import_module(module), constant, value)


def prepare(options: Options) -> RecordedFiles | None:
    """Make the faults and the recording of this process. What is returned is kept as long as it runs."""
    replace_constants(options.constants)
    if options.clock:
        shift_clock(options.clock)
    return record(Recorder(options)) if options.log else None
