"""`petstore`, the operators' command line: its commands, their help, and the one place where errors are reported."""

import gc
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import cleandoc
from typing import Any

import click

from petstore_server import __version__, commit
from petstore_server.cli.failures import EXIT_CODES_HELP, INTERRUPTED, PIPE_CLOSED, report_error
from petstore_server.cli.output import abandon_stdout, prepare_streams

COMMANDS = {
    "serve": "Serve the API and the admin port.",
    "accounts": "Accounts of partners: their plans and their usage.",
    "keys": "API keys: create, list, rotate and revoke them, lift bans.",
    "webhooks": "Webhooks of accounts: list, create, pause, replay, test and delete them, replace their secrets.",
    "usage": "The usage history: requests admitted and refused, and orders cancelled, by hour or day in UTC.",
    "orders": "Orders: import, export, list, ship, complete, cancel.",
    "pets": "Pets, which an order's petId names.",
    "imports": "What became of each import of orders or pets, and the rows that it rejected.",
    "audit": "Show recorded changes, oldest first: when, by whom, what, and the values before and after.",
    "openapi": "Print the OpenAPI contract as this service serves it: YAML, or JSON with --json.",
    "doctor": "Check settings, store, disk, ports, clock, keys, webhooks, Redis and PostgreSQL, and say what to do.",
    "db": "The store as a whole, named by PETSTORE_DATABASE_URL: migrate, check, back up, restore, copy.",
    "console": "Print a link that signs in to the operator console, or list and end its sessions.",
}
"""The commands, with the first sentence of their help."""

_MODULES = dict.fromkeys(("serve", "openapi", "doctor", "console"), "service") | {"pets": "orders"}
"""The commands whose module has another name. Importing all modules takes longer than most commands."""


class Documented(click.Command):
    """A command or a group whose help is a docstring. The lines at its end that begin with `$` are examples.

    `values` are formatted into it. Lists of commands show the whole first sentence, which click would cut off.
    """

    def __init__(self, *args: Any, values: Mapping[str, object] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text, *examples = cleandoc((self.help or "").format_map(values or {})).split("\n$ ")
        self.help = "\n  ".join([f"{text.rstrip()}\n\n\b\nExamples:", *examples]) if examples else text
        self.short_help = self.get_short_help_str(limit=1000)


class Group(Documented, click.Group):
    """A command with subcommands, which are listed in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Root(Group):
    """The whole command line. Every error below it is reported here, and only here.

    Until a command is called, and imported from its module, one that has only its summary stands for it.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            module = import_module(f"petstore_server.cli.{_MODULES.get(args[0], args[0])}")
            self.add_command(getattr(module, args[0]))
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run and exit. Takes click's arguments; every error becomes one line and an exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra |= {"standalone_mode": False, "prog_name": "petstore"}  # in help and completion, however it was started
        prepare_streams()
        try:
            code = super().main(arguments, *rest, **extra)
            sys.stdout.flush()  # here, where a failure is still reported
        except BrokenPipeError:
            code = PIPE_CLOSED
        except Exception as error:  # noqa: BLE001 - no traceback may reach a user
            code = report_error(error, as_json="--json" in arguments)
            if code > 128:  # a signal ended it, perhaps because nothing reads the rest of its output
                abandon_stdout()
        try:
            sys.stdout.flush()
        except OSError:  # Python would try again at exit, and print a second error
            abandon_stdout()
        sys.exit(code if isinstance(code, int) else 0)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _pipe_closed():  # --help and --version write here
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _pipe_closed():
            return super().invoke(ctx)


@contextmanager
def _pipe_closed() -> Iterator[None]:
    """End with PIPE_CLOSED when the reader of stdout has closed it, as `head` does; click would make it exit code 1."""
    try:
        yield
    except BrokenPipeError:
        raise click.exceptions.Exit(PIPE_CLOSED) from None


_VERSION = f"{__version__} (commit {commit()})"


@click.group(
    cls=Root,
    commands={name: click.Command(name, short_help=summary) for name, summary in COMMANDS.items()},
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(_VERSION, prog_name="petstore", help="Show the version and the commit, and exit.")
def petstore() -> None:
    """Run the Pet Store Orders service: load and ship orders, issue keys, watch limits.

    Settings are PETSTORE_* environment variables; PETSTORE_DATABASE_URL names the store (sqlite:///petstore.db
    unless set).

    $ petstore serve --demo                        a server with sample data
    $ petstore orders import orders.csv            load orders
    $ petstore accounts create acme --plan free    a partner
    $ petstore keys create acme                    and a key for it
    $ petstore doctor                              what is wrong and what to do
    """


def collect_garbage() -> None:
    """Begin to collect garbage, if that has not begun, but not among what is there: modules stay."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def main() -> None:
    """Run and exit. Ctrl-C never shows a traceback, not even while an earlier one is being handled."""
    sys.unraisablehook = _report_unraisable
    # Python's complaint about a coroutine that was made, and then interrupted before its first step.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    try:
        petstore()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        gc.freeze()  # otherwise Python looks through all of it again at exit


def _report_unraisable(unraisable: Any) -> None:
    """Report an exception that nothing can catch, such as one in a finalizer, unless it is a Ctrl-C."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
