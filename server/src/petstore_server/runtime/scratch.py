"""An empty store for as long as it is needed, such as for the dry run of an import."""

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from petstore_server.domain.timestamps import DAY
from petstore_server.runtime import engines
from petstore_server.store import Store

_PREFIX = "petstore-scratch-"


@asynccontextmanager
async def scratch_store() -> AsyncIterator[Store]:
    """An empty SQLite store in the system's directory for temporary files, deleted at the end.

    What processes that were killed left there is deleted a day later.
    """
    _delete_abandoned()
    with TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as directory:
        url = f"sqlite:///{Path(directory) / 'scratch.db'}"
        async with engines.opened_store(url, create=True, migrate=True) as store:
            yield store


def _delete_abandoned() -> None:
    for left in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - DAY:
                shutil.rmtree(left, ignore_errors=True)
