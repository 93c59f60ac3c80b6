"""Logs as JSON Lines. Writing them never raises and never waits. No line holds a key."""

import atexit
import json
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from petstore_server.domain.texts import hide_keys
from petstore_server.domain.timestamps import format_timestamp

_CAPACITY = 10_000  # lines in memory while stderr takes none
_LINES_PER_WRITE = 100
_GATHER_SECONDS = 0.002  # a wake-up and a write for every line would cost more than the lines
_DRAIN_SECONDS = 1.0


class LineWriter:
    """Writes lines to a file descriptor from a separate thread.

    A log must never stop the work that it describes. A closed pipe, a full disk or a reader that has stopped reading
    costs the lines that cannot be written, which are counted in `lost`, and nothing else.
    """

    def __init__(self, descriptor: int, capacity: int = _CAPACITY) -> None:
        """`descriptor` is -1 where the process was started without stderr: every line is lost."""
        self._descriptor = descriptor
        self._capacity = capacity
        self._queue: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._torn = False  # whether only the beginning of the last line could be written, as on a full disk
        self.lost = 0
        threading.Thread(target=self._work, name="petstore-log", daemon=True).start()

    def write(self, line: str) -> None:
        """Queue a line, which includes its line end."""
        if sys.is_finalizing():  # the thread has ended
            self._write([line])
        elif self._queue.qsize() < self._capacity:
            self._queue.put(line)
        else:
            self.lost += 1

    def drain(self, seconds: float = _DRAIN_SECONDS) -> None:
        """Wait until all lines queued so far are written or lost, at most this long."""
        done = threading.Event()
        self._queue.put(done)
        done.wait(seconds)

    def _work(self) -> None:
        while True:
            items = [self._queue.get()]
            time.sleep(_GATHER_SECONDS)
            items += [self._queue.get() for _ in range(min(self._queue.qsize(), _LINES_PER_WRITE))]
            self._write([item for item in items if isinstance(item, str)])
            for item in items:
                if isinstance(item, threading.Event):
                    item.set()

    def _write(self, lines: list[str]) -> None:
        data = memoryview(("\n" * self._torn + "".join(lines)).encode("utf-8", "backslashreplace"))
        try:
            while data:
                try:
                    written = os.write(self._descriptor, data)
                    self._torn, data = data[written - 1] != ord("\n"), data[written:]
                except BlockingIOError:  # another program made the descriptor non-blocking
                    select.select((), (self._descriptor,), ())
        except OSError:
            self.lost += bytes(data).lstrip(b"\n").count(b"\n")  # the end of a torn line is not one more


_log = logging.getLogger(__name__)
_stream: LineWriter | TextIO = sys.stderr


@contextmanager
def logging_to_stderr(level: str) -> Iterator[None]:
    """Write the logs of this process to stderr, from `level` (a name) up; at the end, wait for the last lines.

    So is, also later, all that Python would write to stderr itself: warnings, and errors that nothing handles.
    """
    writer = LineWriter(sys.__stderr__.fileno() if sys.__stderr__ is not None else -1)
    configure_logging(level, writer)
    logging.captureWarnings(True)
    sys.excepthook = lambda *error: _log_unhandled(error)
    threading.excepthook = sys.unraisablehook = _log_unhandled
    atexit.register(writer.drain)
    try:
        yield
    finally:
        writer.drain()


def _log_unhandled(error: Any) -> None:
    """Log an error, a tuple that begins with its type, value and traceback, unless it is the effect of Ctrl-C."""
    if not issubclass(error[0], KeyboardInterrupt):
        _log.error("error not handled", exc_info=error[:3])


def lost_lines() -> int:
    """How many log lines of this process could not be written to stderr."""
    return _stream.lost if isinstance(_stream, LineWriter) else 0


def write_record(record: dict[str, Any]) -> None:
    """Write a line with these fields, all of the line: it costs a quarter of one by `logging`."""
    try:
        line = msgspec.json.encode(record, enc_hook=str).decode()
    except Exception:  # noqa: BLE001 - for example a lone surrogate; a value that cannot be logged must not raise
        plain = (str, int, float, type(None))
        line = json.dumps({k: v if isinstance(v, plain) else object.__repr__(v) for k, v in record.items()})
    _stream.write(line + "\n")


def configure_logging(level: str, stream: LineWriter | TextIO | None = None) -> None:
    """Write logs as JSON Lines to `stream` (sys.stderr by default), from `level` (a name) up."""
    global _stream  # noqa: PLW0603 - one for the process, as that of logging
    _stream = stream or sys.stderr
    logger = logging.getLogger("petstore_server")
    logger.handlers = [_Lines()]
    logger.setLevel(level.upper())
    logger.propagate = False
    logging.getLogger().addHandler(_LIBRARIES)  # otherwise Python writes their messages to stderr, not as JSON
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not for each request that is not HTTP


def timestamp(at: float) -> str:
    """A Unix time as in all lines of the log."""
    return format_timestamp(datetime.fromtimestamp(at, UTC))


class _Lines(logging.Handler):
    """Writes a record as one line: the fields in `extra`, then the event, its level, its time and the process."""

    _own = frozenset(vars(logging.makeLogRecord({})))
    _formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - the arguments do not fit: no reason to raise in a library
            message = str(record.msg)
        if record.name.startswith("petstore_server"):
            line = {name: value for name, value in vars(record).items() if name not in self._own}
            line["event"] = message
        else:
            line = {"event": LIBRARY_EVENT, "logger": record.name, "message": message}
        line = {name: hide_keys(value) if isinstance(value, str) else value for name, value in line.items()}
        line["level"] = record.levelname.lower()
        line |= {"timestamp": timestamp(record.created), "pid": record.process}  # several may share one stderr
        if record.exc_info:
            line["exception"] = hide_keys(self._formatter.formatException(record.exc_info))
        write_record(line)


LIBRARY_EVENT = "message of a library"
_LIBRARIES = _Lines(logging.WARNING)
