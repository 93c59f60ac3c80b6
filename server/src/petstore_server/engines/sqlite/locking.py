"""The lock of a store that is served. It is on the store's file, so every name of the file leads to the same lock."""

import fcntl
import os
from collections import defaultdict
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType

from petstore_server.domain.errors import StoreUnusable
from petstore_server.engines.sqlite.connections import create_private
from petstore_server.engines.sqlite.opening import require_place, unusable_on_error

_LOCK_PAUSE = 0.02  # seconds between attempts
_TAKEN = "Another `petstore serve` already uses the store at {path}."
_SEVERAL_SERVERS = "Stop it, or set PETSTORE_REDIS_URL for both, so that they count limits together."

idle: dict[tuple[int, int], list[int]] = defaultdict(list)
"""Descriptors that held a lock, by device and inode; kept to be used again.

They stay open because closing any descriptor of a file releases SQLite's own locks on it in the whole process. Linux
keeps flock apart from those locks.
"""


class ServingLock:
    """A lock that is held until `close`; the system releases it after a crash."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def __enter__(self) -> "ServingLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            _release(self._descriptor)
            self._descriptor = None


def lock_for_serving(path: Path, *, shared: bool, wait_seconds: float = 0) -> ServingLock:
    """Lock the store's file for a server: exclusive without Redis, `shared` with it (D12). A missing file is created.

    Raises StoreUnusable if another server holds the lock, in a way that excludes this one, for longer than
    `wait_seconds`.
    """
    path = path.resolve()
    require_place(path, file_too=False)
    deadline = monotonic() + wait_seconds
    with unusable_on_error(path):
        while True:
            create_private(path)
            descriptor = _acquired(path, shared=shared)
            if descriptor is not None and _is_named(descriptor, path):
                return ServingLock(descriptor)
            if descriptor is not None:
                _release(descriptor)  # a restore has replaced the file meanwhile
            elif monotonic() >= deadline:
                raise StoreUnusable(_TAKEN.format(path=path), _SEVERAL_SERVERS)
            else:
                sleep(_LOCK_PAUSE)


def is_served(path: Path, *, shared: bool) -> bool:
    """Whether a server holds the lock in a way that excludes one which would hold it like this.

    False where this user may not read the file.
    """
    try:
        descriptor = _acquired(path, shared=shared)
    except OSError:
        return False
    if descriptor is not None:
        _release(descriptor)
    return descriptor is None


def _acquired(path: Path, *, shared: bool) -> int | None:
    """A descriptor that holds the lock; None if another one excludes it. Raises OSError."""
    descriptor = _descriptor(path)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        _release(descriptor)
        return None
    return descriptor


def _descriptor(path: Path) -> int:
    found = path.stat()
    descriptors = idle[found.st_dev, found.st_ino]
    return descriptors.pop() if descriptors else os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _release(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    found = os.fstat(descriptor)
    idle[found.st_dev, found.st_ino].append(descriptor)


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
