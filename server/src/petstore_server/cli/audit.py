"""`petstore audit`: who changed what, and when."""

import json
from datetime import datetime
from typing import Any

import click

from petstore_server.cli.arguments import When
from petstore_server.cli.console import Command, wants_json, write, write_json
from petstore_server.cli.stores import with_store
from petstore_server.domain.timestamps import format_unix
from petstore_server.ports import AuditEntry, Store

_SHOWN = 200  # characters of a change on one line


@click.command(cls=Command)
@click.option("--since", type=When(past=True), metavar="WHEN", help="From when on: 24h (back from now), or RFC 3339.")
def audit(since: datetime | None) -> None:
    """Show every recorded change, oldest first: when, by whom, what, and the values before and after.

    With --json, one object a line. A change over several batches, such as an import, has one entry a batch.

    \b
    Examples:
      petstore audit --since 24h
      petstore audit --json | grep '"order.cancel"'
    """

    async def stream(store: Store) -> None:
        async for entry in store.audit.entries(since.timestamp() if since else None):
            if wants_json():
                write_json({**entry._asdict(), "at": format_unix(entry.at, microseconds=True)})
            else:
                write(_line(entry))

    with_store(stream)


def _line(entry: AuditEntry) -> str:
    change = f"{_short(entry.before)} → {_short(entry.after)}"
    at = format_unix(entry.at, microseconds=True) or "-"
    return f"{at:<27}  {entry.actor:<20}  {entry.action:<16}  {entry.subject}  {change}\n"


def _short(value: Any) -> str:
    if value is None:
        return "-"
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
