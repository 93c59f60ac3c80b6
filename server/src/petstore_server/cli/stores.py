"""How a command uses the store: open, work, close; and the operator's name for the audit log.

Engines are imported by the functions that use the store, because they take longer than anything else that `--help`,
`--version` and wrong usage need.
"""

import getpass
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from petstore_server.cli.output import log_to_stderr, printable
from petstore_server.domain.audit import Actor
from petstore_server.settings import Settings, read_settings
from petstore_server.store import Store

if TYPE_CHECKING:
    from petstore_server.runtime.installation import LocalInstallation

T = TypeVar("T")


def settings_here() -> Settings:
    """The settings of this process's environment. Raises SettingsError."""
    return read_settings(os.environ)


def installation() -> "LocalInstallation":
    """The installation that the settings name. Raises SettingsError."""
    from petstore_server.runtime.installation import LocalInstallation

    return LocalInstallation(settings_here())


def with_store(work: Callable[[Store], Awaitable[T]], *, writes: bool = False) -> T:
    """Do `work` on the store that the settings name, and close it.

    A command that writes creates a missing store and says so; for one that reads, a missing store is StoreUnusable.
    """
    import asyncio

    here = installation()

    async def run() -> T:
        async with here.opened_store(create=writes, announce=log_to_stderr) as store:
            return await work(store)

    return asyncio.run(run())


def operator() -> Actor:
    """The operator for the audit log: named with `--as`, else who called sudo, else the user of this process."""
    ctx = click.get_current_context(silent=True)
    name = ctx and ctx.meta.get("operator")
    try:
        name = name or printable(os.environ.get("SUDO_USER") or getpass.getuser())[:100]
    except (KeyError, OSError):  # a container may run with a user id that has no name
        name = os.getuid()
    return Actor(f"operator:{name}", time.time())
