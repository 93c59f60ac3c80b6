"""The kinds of commands: all take `--json`, those that write take `--as`, and every error becomes an exit code."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any, TypeVar

import click

from petstore_server.cli.failures import PIPE_CLOSED, report_error
from petstore_server.cli.output import JSON_KEY, abandon_stdout, prepare_streams

Function = TypeVar("Function", bound=Callable[..., None])

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
    """A command or a group whose help is a docstring. The lines at its end that begin with `$` are examples."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text, *examples = cleandoc(self.help or "").split("\n$ ")
        self.help = "\n  ".join([f"{text.rstrip()}\n\n\b\nExamples:", *examples]) if examples else text


class Command(Documented):
    """A command that takes `--json`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--json"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                callback=_note(JSON_KEY),
                help="Write data as JSON to stdout, and errors as one JSON object to stderr.",
            )
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, which cleans up and reports if a signal ends it."""
        import logging  # `--help` and `--version` need neither

        from petstore_server.cli.interruption import interruptible

        # Otherwise Python writes the messages of libraries to stderr, such as asyncio's about a task that Ctrl-C ended.
        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(logging.NullHandler())
        with interruptible():
            return super().invoke(ctx)


class WritingCommand(Command):
    """A command that changes the store: it takes `--as` too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from petstore_server.cli.arguments import OPERATOR_NAME  # `petstore --help` needs neither
        from petstore_server.cli.stores import OPERATOR_KEY

        super().__init__(*args, **kwargs)
        self.params.insert(
            -1,
            click.Option(
                ["--as", "operator_name"],
                type=OPERATOR_NAME,
                metavar="NAME",
                expose_value=False,
                callback=_note(OPERATOR_KEY),
                help="The operator's name for the audit log; the name of your user if not given.",
            ),
        )


class Group(Documented, click.Group):
    """A noun; its verbs are commands that take `--json`."""

    command_class = Command
    group_class = type

    def summaries(self) -> Mapping[str, str]:
        """The whole first sentence of the help of each command, which click itself would cut off."""
        return {name: command.get_short_help_str(limit=1000) for name, command in self.commands.items()}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries().items()))


def noun(name: str, example: str) -> Group:
    """The group of the commands that concern one noun, named as in SUMMARIES."""
    return Group(name, help=f"{SUMMARIES[name]}\n$ {example}")


class Root(Group):
    """The whole command line. Every error below it is reported here, and only here.

    `summaries` has its commands by name, each of which is imported from the module with this name when it is needed.
    """

    def __init__(self, *args: Any, summaries: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self._summaries)

    def summaries(self) -> Mapping[str, str]:
        """Those of all commands, without importing them."""
        return self._summaries

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with this name, imported if it was not yet."""
        if cmd_name in self._summaries and cmd_name not in self.commands:
            self.add_command(getattr(import_module(f"petstore_server.cli.{cmd_name}"), cmd_name))
        return super().get_command(ctx, cmd_name)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run and exit. Takes click's arguments; every error becomes one line and an exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        extra["prog_name"] = "petstore"  # however it was started: in help, hints and completion
        if os.environ.get("NO_COLOR"):
            extra["color"] = False
        prepare_streams()
        try:
            code = super().main(arguments, *rest, **extra)
            sys.stdout.flush()  # here, where a failure is still reported
        except (_PipeClosed, BrokenPipeError):
            abandon_stdout()
            code = PIPE_CLOSED
        except Exception as error:  # noqa: BLE001 - no traceback may reach a user
            code = report_error(error, as_json="--json" in arguments)
            _flush_stdout()
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _PipeClosed from None  # click would make it exit code 1


def help_values(**values: object) -> Callable[[Function], Function]:
    """Format these values into the docstring of a command's function, which is the help of the command."""

    def apply(function: Function) -> Function:
        function.__doc__ = (function.__doc__ or "").format(**values)
        return function

    return apply


def confirm(question: str, otherwise: str) -> None:
    """Ask on the terminal; unless the answer is yes, end the command with the message `otherwise`."""
    if not sys.stdin.isatty():
        raise click.UsageError("This needs a confirmation: add --yes, because stdin is not a terminal.")
    if not click.confirm(question, err=True):
        raise click.ClickException(otherwise)


class _PipeClosed(Exception):
    """The reader of stdout has closed it, as `head` does."""


def _note(key: str) -> Any:
    def note(ctx: click.Context, _: click.Parameter, value: object) -> None:
        ctx.meta[key] = value

    return note


def _flush_stdout() -> None:
    """Write what is buffered. If that fails again, Python must not retry at exit and print a second error."""
    try:
        sys.stdout.flush()
    except OSError:
        abandon_stdout()
