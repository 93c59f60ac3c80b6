"""`petstore doctor`: what is wrong with this installation, and what to do about it."""

import asyncio
import time

import click

from petstore_server.cli.commands import Command
from petstore_server.cli.failures import FAILURE
from petstore_server.cli.output import paint, printable, show, wrapped
from petstore_server.cli.stores import installation
from petstore_server.operations.health.examine import examine
from petstore_server.operations.health.results import CheckResult
from petstore_server.settings import SettingsError

_LABELS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@click.command(cls=Command)
def doctor() -> None:
    """Check the settings, store, disk, ports, clock, keys, Redis and PostgreSQL; say what is wrong and what to do.

    Exit code 1 if a check fails. Changes no data, and never shows a password or a key.

    \b
    Examples:
      petstore doctor
      petstore doctor --json
    """
    results = asyncio.run(_examined())
    show([result._asdict() for result in results], lambda: "\n".join(map(_lines, results)))
    if any(result.level == "fail" for result in results):
        click.get_current_context().exit(FAILURE)


async def _examined() -> list[CheckResult]:
    try:
        here = installation()
    except SettingsError as error:
        return [CheckResult("settings", "fail", str(error), "Correct the variable; the other checks need it.")]
    return [result async for result in examine(here, time.time())]


def _lines(result: CheckResult) -> str:
    label, colour = _LABELS[result.level]
    text = wrapped(f"{label}  {result.check}: {printable(result.message)}", 6)
    remedy = "\n" + wrapped(f"      → {printable(result.remedy)}", 8) if result.remedy else ""
    return f"{paint(label, colour)}{text.removeprefix(label)}{remedy}"
