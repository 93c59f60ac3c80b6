"""An empty store for as long as it is needed, such as for the dry run of an import."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from petstore_server.runtime import engines
from petstore_server.store import Store


@asynccontextmanager
async def scratch_store() -> AsyncIterator[Store]:
    """An empty SQLite store in the system's directory for temporary files, deleted at the end."""
    with TemporaryDirectory(prefix="petstore-", ignore_cleanup_errors=True) as directory:
        url = f"sqlite:///{Path(directory) / 'scratch.db'}"
        async with engines.opened_store(url, create=True, migrate=True) as store:
            yield store
