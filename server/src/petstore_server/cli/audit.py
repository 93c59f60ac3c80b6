"""`petstore audit`: who changed what, and when."""

import json
from functools import partial
from typing import Any

import click

from petstore_server.cli.arguments import ORDER_ID, PAST, TEXT, WholeNumber, require_period
from petstore_server.cli.commands import ACCOUNT_NAME, KEY_ID, Command, with_store
from petstore_server.cli.output import printable, show, wrapped
from petstore_server.operations.audit import ACTIONS, entry_fields, read_audit
from petstore_server.store import Store

_SHOWN = 200  # characters of a change on one line


@click.command(cls=Command)
@click.option("--since", type=PAST, help="Only changes since then: 24h (ago), or 2026-11-20.")
@click.option("--until", type=PAST, help="Only changes before then.")
@click.option("--account", type=ACCOUNT_NAME, help="Only the account, its keys and webhooks, and what the keys did.")
@click.option("--key", type=KEY_ID, help="Only the key, and what it did.")
@click.option("--order", type=ORDER_ID, help="Only the order, and the imports that created or changed it.")
@click.option("--actor", type=TEXT, metavar="NAME", help="Only changes by this operator, key:ID, or service.")
@click.option(
    "--action", type=click.Choice(ACTIONS), metavar="NAME", help="Only this action, such as order.cancel or key.revoke."
)
@click.option("--request-id", type=TEXT, metavar="ID", help="Only what the request with this X-Request-Id changed.")
@click.option("--limit", type=WholeNumber(min=1), metavar="N", help="At most N changes: the first in the order shown.")
@click.option("--newest-first", is_flag=True, help="The newest change first.")
@click.option("--full", is_flag=True, help="Each batch of an import, with both states of all it changed.")
def audit(limit: int | None, **conditions: Any) -> None:
    """Show recorded changes, oldest first: when, by whom, what, and the values before and after.

    With several options, changes that match all of them. With --json, one object per line. An import has one entry,
    which counts what it has done so far; with --full, one for each of its batches. A change that a request made ends
    with the request's X-Request-Id, and with the trace that the request named in `traceparent`. `verified`
    is in front of an operator whose name the proxy that signs operators in to the console has given; other names are as
    they were typed.

    $ petstore audit --since 24h
    $ petstore audit --account acme --since 2026-11-01 --until 2026-12-01
    $ petstore audit --order 42
    $ petstore audit --newest-first --limit 20
    """
    if conditions["since"] is not None and conditions["until"] is not None:
        require_period(conditions["since"], conditions["until"])

    async def stream(store: Store) -> None:
        shown = 0
        async for entry in read_audit(store, **conditions):
            fields = entry_fields(entry)
            show(fields, partial(_line, fields))
            shown += 1
            if shown == limit:
                return

    with_store(stream)


def _line(entry: dict[str, Any]) -> str:
    change = f"{_short(entry['before'])} → {_short(entry['after'])}"
    if entry["requestId"] is not None:
        change += f"  request {entry['requestId']}"
    if "traceId" in entry:
        change += f"  trace {entry['traceId']}"
    actor = entry["actor"] + (f" of {entry['account']}" if "account" in entry else "")
    actor = f"verified {actor}" if "verified" in entry else actor  # in front, where no name can write it
    cells = (f"{printable(entry['at']):<27}", f"{printable(actor):<20}", f"{printable(entry['action']):<16}")
    return wrapped("  ".join((*cells, printable(entry["subject"]), printable(change))), 4)


def _short(value: Any) -> str:
    if value is None:
        return "-"
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
