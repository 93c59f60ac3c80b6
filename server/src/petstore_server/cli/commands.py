"""What every command has: `--json`, `--as` if it writes, signal handling, and the store that the settings name.

Engines are imported by the functions that use the store, because they take longer than anything else that `--help`,
`--version` and wrong usage need.
"""

import getpass
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from petstore_server.cli.arguments import OPERATOR_NAME, Parsed, key_id
from petstore_server.cli.failures import interruptible
from petstore_server.cli.main import COMMANDS, Documented, Group, collect_garbage
from petstore_server.cli.output import printable
from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import Conflict
from petstore_server.runtime.opening import is_sqlite, named_store, store_file
from petstore_server.settings import Settings, read_settings
from petstore_server.store import Store

T = TypeVar("T")

YES = click.option("--yes", is_flag=True, help="Do not ask; required if stdin is not a terminal.")


class Command(Documented):
    """A command that takes `--json`, and one that `writes` to the store `--as` too."""

    def __init__(self, *args: Any, writes: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if writes:
            about = "The operator's name for the audit log; the name of your user if not given."
            self.params.append(click.Option(["--as", "operator"], type=OPERATOR_NAME, help=about))
        about = "Write data as JSON to stdout, and errors as one JSON object to stderr."
        self.params.append(click.Option(["--json"], is_flag=True, help=about))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, which cleans up and reports if a signal ends it."""
        # Otherwise Python writes the messages of libraries to stderr, such as asyncio's about a task that Ctrl-C ended.
        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(logging.NullHandler())
        ctx.meta.update((name, ctx.params.pop(name, None)) for name in ("json", "operator", "verified"))
        with interruptible():
            return super().invoke(ctx)


class Noun(Group):
    """The group of the commands that concern one noun, with the summary that COMMANDS has, and more `about` it."""

    command_class = Command

    def __init__(self, name: str, about: str) -> None:
        super().__init__(name, help=f"{COMMANDS[name]}\n\n{about}")


def confirm(question: str, otherwise: str = "Nothing was changed.") -> None:
    """Ask on the terminal; unless the answer is yes, end the command with the message `otherwise`."""
    if not sys.stdin.isatty():
        raise click.UsageError("This needs a confirmation: add --yes, because stdin is not a terminal.")
    if not click.confirm(printable(question), err=True):
        raise click.ClickException(otherwise)


def settings_here() -> Settings:
    """The settings of this process's environment. Raises SettingsError."""
    return read_settings(os.environ)


def with_store(work: Callable[[Store], Awaitable[T]], *, concurrent: bool = False) -> T:
    """Do `work` on the store that the settings name, and close it. Raises NoStore and other StoreUnusable.

    Unless the work is `concurrent`, it runs without an event loop if the settings name a file and no Redis: loading
    asyncio takes a fifth of the time of such a command.
    """
    settings = settings_here()
    serial = not concurrent and is_sqlite(settings.database_url) and settings.redis_url is None

    async def run() -> T:
        async with named_store(settings, serial=serial) as store:
            collect_garbage()
            return await work(store)

    if serial:
        from petstore_server.store.engine import run_synchronously

        return run_synchronously(run())
    import asyncio

    return asyncio.run(run())


def require_writable(file: str, *, force: bool) -> None:
    """Raise Conflict for a file that a command must not write: with `force` only a store, its log or a backup."""
    from petstore_server.partial_files import is_protected

    if is_protected(Path(file), store_file(settings_here())):
        raise Conflict(f"{file} belongs to a store, or is a backup, which nothing replaces; choose another name.")
    if Path(file).is_file() and not force:
        raise Conflict(f"{file} exists; choose another name, or add --force to replace it.")


@contextmanager
def written_file(
    name: str, mode: str = "wb", *, force: bool, at_once: bool = False, **options: Any
) -> Iterator[IO[Any]]:
    """A file to write, opened as `open` does. It gets its name when it is complete and on disk, or `at_once`, empty.

    A pipe, a device or an open descriptor is written to instead. Raises Conflict, InvalidInput and OSError.
    """
    from petstore_server.partial_files import opened_stream, partial_file

    if (stream := opened_stream(name, mode, **options)) is not None:
        with stream:
            yield stream
        return
    with partial_file(Path(name).absolute()) as partial, partial.create(mode, **options) as file:
        if at_once:
            partial.put_in_place(replace=force)
        yield file
        if not at_once:
            file.flush()
            require_writable(name, force=force)  # again: another command may have made a backup with this name
            partial.put_in_place(replace=force)


def operator() -> Actor:
    """The operator for the audit log: named with `--as`, else who called sudo, else the user of this process."""
    ctx = click.get_current_context(silent=True)
    name = ctx and ctx.meta.get("operator")
    try:
        name = name or printable(os.environ.get("SUDO_USER") or getpass.getuser())[:100]
    except (KeyError, OSError):  # a container may run with a user id that has no name
        name = os.getuid()
    return Actor(f"operator:{name}", time.time(), verified=bool(ctx and ctx.meta.get("verified")))


class Stored(Parsed[str]):
    """The text of an attribute, `name`, of `records` in the store, which a shell completes."""

    def __init__(
        self, name: str, read: Callable[[str], str], records: Callable[[Store], Awaitable[Iterable[object]]]
    ) -> None:
        super().__init__(name, read)
        self._records = records

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """What begins with what was typed; nothing if the store cannot be read."""
        try:
            names = [getattr(record, self.name) for record in with_store(self._records)]
        except Exception:  # noqa: BLE001 - a shell that completes must not print an error
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


ACCOUNT_NAME = Stored("name", str, lambda store: store.accounts.list())
KEY_ID = Stored("id", key_id, lambda store: store.keys.list())
