"""`petstore doctor`: what is wrong with this installation, and what to do about it."""

import asyncio
import time
from collections.abc import Mapping

import click

from petstore_server.cli.commands import Command
from petstore_server.cli.failures import FAILURE
from petstore_server.cli.output import paint, printable, show, wrapped
from petstore_server.cli.stores import installation
from petstore_server.operations.health import Action, CheckResult
from petstore_server.runtime.health import examine
from petstore_server.settings import SettingsError

_LABELS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}

_COMMANDS: Mapping[Action, str] = {
    "create account": "petstore accounts create NAME --plan free",
    "create key": "petstore keys create ACCOUNT",
    "rotate key": "petstore keys rotate {} --expires 90d",
    "lift ban": "petstore keys unban {}",
    "back up": "petstore db backup FILE --keep 14",
    "restore": "petstore db restore FILE",
    "check store": "petstore db check reads all of it.",
}


@click.command(cls=Command)
def doctor() -> None:
    """Check settings, store, disk, ports, clock, keys, Redis and PostgreSQL, and say what to do.

    Exit code 1 if a check fails. Changes no data, and never shows a password or a key.

    $ petstore doctor
    $ petstore doctor --json
    """
    try:
        found = asyncio.run(examine(installation(), time.time()))
    except SettingsError as error:
        found = [CheckResult("settings", "fail", str(error), "Correct the variable; the other checks need it.")]
    results = [result._replace(remedy=_remedy(result)) for result in found]
    fields = ("check", "level", "message", "remedy")
    show([dict(zip(fields, result, strict=False)) for result in results], lambda: "\n".join(map(_lines, results)))
    if any(result.level == "fail" for result in results):
        click.get_current_context().exit(FAILURE)


def _remedy(result: CheckResult) -> str:
    """The remedy, and the command for it."""
    command = _COMMANDS[result.action].format(result.subject) if result.action else ""
    return " ".join(filter(None, (result.remedy, command)))


def _lines(result: CheckResult) -> str:
    label, colour = _LABELS[result.level]
    text = wrapped(f"{label}  {result.check}: {printable(result.message)}", 6)
    remedy = "\n" + wrapped(f"      → {printable(result.remedy)}", 8) if result.remedy else ""
    return f"{paint(label, colour)}{text.removeprefix(label)}{remedy}"
