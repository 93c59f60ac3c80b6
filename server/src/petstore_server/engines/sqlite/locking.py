"""The lock of a store that is served. It is on the store's file, so every name of the file leads to the same lock."""

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from petstore_server.domain.errors import StoreUnusable
from petstore_server.engines.sqlite.connections import create_private
from petstore_server.engines.sqlite.opening import require_place, unusable_on_error

_LOCK_PAUSE = 0.02  # seconds between attempts
_TAKEN = "Another server already uses the store at {path}."
_SEVERAL_SERVERS = "Stop it, or set PETSTORE_REDIS_URL for both, so that they count limits together."

idle: dict[tuple[int, int], list[int]] = defaultdict(list)
"""Descriptors that held a lock, by device and inode; kept to be used again.

They stay open because closing any descriptor of a file releases SQLite's own locks on it in the whole process. Linux
keeps flock apart from those locks.
"""


@contextmanager
def lock_for_serving(
    path: Path, *, shared: bool, wait_seconds: float = 0, advice: str = _SEVERAL_SERVERS
) -> Iterator[None]:
    """Lock the store's file for a server: exclusive without Redis, `shared` with it (D12). A missing file is created.

    The system releases the lock after a crash. Raises StoreUnusable, with this advice, if another server holds the lock
    in a way that excludes this one for longer than `wait_seconds`.
    """
    path = path.resolve()
    require_place(path, file_too=False)
    deadline = monotonic() + wait_seconds
    with unusable_on_error(path):
        create_private(path)
        while (descriptor := _acquired(path, shared=shared)) is None:
            if monotonic() >= deadline:
                raise StoreUnusable(_TAKEN.format(path=path), advice)
            sleep(_LOCK_PAUSE)
    try:
        yield
    finally:
        _release(descriptor)


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
    """A descriptor that holds the lock of the file with this name; None if another one excludes it. Raises OSError."""
    while True:
        found = path.stat()
        descriptors = idle[found.st_dev, found.st_ino]
        descriptor = descriptors.pop() if descriptors else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            _release(descriptor)
            return None
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        _release(descriptor)  # another file was put into place meanwhile


def _release(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    found = os.fstat(descriptor)
    idle[found.st_dev, found.st_ino].append(descriptor)
