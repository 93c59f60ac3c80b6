"""How a command gets at the store: open, work, close; and who is said to have done it."""

import asyncio
import getpass
import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from petstore_server.cli.console import log_to_stderr
from petstore_server.ports import Actor, Store
from petstore_server.runtime import backend
from petstore_server.settings import Settings, read_settings

T = TypeVar("T")


def settings_here() -> Settings:
    """The settings of this process's environment. Raises SettingsError."""
    return read_settings(os.environ)


def with_store(work: Callable[[Store], Awaitable[T]], *, writes: bool = False) -> T:
    """Do `work` on the store that the settings name, and close it.

    A command that writes makes a missing store and says so; one that reads raises StoreUnusable.
    """
    settings = settings_here()

    async def run() -> T:
        store = await backend.open_store(settings, create=writes, announce=log_to_stderr)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def operator() -> Actor:
    """The operator at the keyboard, now: what the audit log says of a change."""
    return Actor(f"operator:{_user()}", time.time())


def now() -> datetime:
    """This moment, aware and in UTC."""
    return datetime.now(UTC)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may run under a user id that has no name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
