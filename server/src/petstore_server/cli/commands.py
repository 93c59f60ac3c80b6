"""The kinds of commands: all take `--json`, those that write take `--as`, and every error becomes an exit code."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any

import click

from petstore_server.cli.failures import PIPE_CLOSED, report_error
from petstore_server.cli.output import abandon_stdout, prepare_streams

SUMMARIES = {
    "serve": "Serve the API and the admin port.",
    "accounts": "Accounts of partners: their plans and their usage.",
    "keys": "API keys: create, list, rotate and revoke them, lift bans.",
    "usage": "The usage history: requests admitted and refused, and orders cancelled, by hour or day in UTC.",
    "orders": "Orders: import, export, list, ship, complete, cancel.",
    "pets": "Pets, which an order's petId names.",
    "audit": "Show recorded changes, oldest first: when, by whom, what, and the values before and after.",
    "openapi": "Print the OpenAPI contract as this service serves it: YAML, or JSON with --json.",
    "doctor": "Check settings, store, disk, ports, clock, keys, Redis and PostgreSQL, and say what to do.",
    "db": "The store as a whole, named by PETSTORE_DATABASE_URL: migrate, check, back up, restore, copy.",
    "console": "Print a link that signs in to the operator console.",
}
"""The modules of the commands, with the first sentence of their help: to import all takes longer than most commands."""


class Documented(click.Command):
    """A command or a group whose help is a docstring. The lines at its end that begin with `$` are examples.

    `values` are formatted into it. Lists of commands show the whole first sentence, which click would cut off.
    """

    def __init__(self, *args: Any, values: Mapping[str, object] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text, *examples = cleandoc((self.help or "").format_map(values or {})).split("\n$ ")
        self.help = "\n  ".join([f"{text.rstrip()}\n\n\b\nExamples:", *examples]) if examples else text
        self.short_help = self.get_short_help_str(limit=1000)


class Command(Documented):
    """A command that takes `--json`, and one that `writes` to the store `--as` too."""

    def __init__(self, *args: Any, writes: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if writes:
            from petstore_server.cli.arguments import OPERATOR_NAME  # `petstore --help` does not need it

            about = "The operator's name for the audit log; the name of your user if not given."
            self.params.append(click.Option(["--as", "operator"], type=OPERATOR_NAME, help=about))
        about = "Write data as JSON to stdout, and errors as one JSON object to stderr."
        self.params.append(click.Option(["--json"], is_flag=True, help=about))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, which cleans up and reports if a signal ends it."""
        import logging  # `--help` and `--version` need neither

        from petstore_server.cli.interruption import interruptible

        # Otherwise Python writes the messages of libraries to stderr, such as asyncio's about a task that Ctrl-C ended.
        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(logging.NullHandler())
        ctx.meta.update((name, ctx.params.pop(name, None)) for name in ("json", "operator"))
        with interruptible():
            return super().invoke(ctx)


class Group(Documented, click.Group):
    """A noun; its verbs are commands that take `--json`."""

    command_class = Command
    group_class = type

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of their definition."""
        return list(self.commands)


def noun(name: str, example: str) -> Group:
    """The group of the commands that concern one noun, named as in SUMMARIES."""
    return Group(name, help=f"{SUMMARIES[name]}\n$ {example}")


class Root(Group):
    """The whole command line. Every error below it is reported here, and only here.

    Until a command is called, and imported from the module with its name, one that has only its summary stands for it.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The name of the command that is called, the command, and its arguments."""
        if args[0] in self.commands:
            self.add_command(getattr(import_module(f"petstore_server.cli.{args[0]}"), args[0]))
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
        try:
            sys.stdout.flush()
        except OSError:  # Python would try again at exit, and print a second error
            abandon_stdout()
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of stdout has closed it, as `head` does
            ctx.exit(PIPE_CLOSED)  # click would make it exit code 1


def confirm(question: str, otherwise: str) -> None:
    """Ask on the terminal; unless the answer is yes, end the command with the message `otherwise`."""
    if not sys.stdin.isatty():
        raise click.UsageError("This needs a confirmation: add --yes, because stdin is not a terminal.")
    if not click.confirm(question, err=True):
        raise click.ClickException(otherwise)
