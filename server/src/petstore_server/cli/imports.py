"""`petstore imports`: what became of each import, and the rows that it rejected."""

import json
from typing import Any

import click

from petstore_server.cli.arguments import FileToWrite, WholeNumber
from petstore_server.cli.commands import Noun, Stored, require_writable, with_store, written_file
from petstore_server.cli.output import comment, details, plural, show, table, write_json
from petstore_server.domain.imports import ImportRun
from petstore_server.domain.timestamps import format_unix
from petstore_server.imports.options import STDIN
from petstore_server.store import Store

_TITLES = ("ID", "STARTED", "FILE", "ACTOR", "STATE", "CREATED", "REPLACED", "UNCHANGED", "REJECTED")
_COUNTS = ("created", "replaced", "unchanged", "rejected")
_REJECTS = "Write the rejected rows to FILE as JSON Lines, or to stdout (-) instead of the rest."
_NAMES = ("id", "startedAt", "file", "actor", "state", *_COUNTS)

imports = Noun("imports", "$ petstore imports list")


async def _recent(store: Store) -> list[ImportRun]:
    return list((await store.imports.page(100)).imports)


def _fields(run: ImportRun) -> dict[str, Any]:
    """The record of an import as it is shown."""
    return {
        **{name: getattr(run, name) for name in ("id", "kind", "file", "actor", "state")},
        "startedAt": format_unix(run.began_at),
        "durationSeconds": round(run.seen_at - run.began_at, 1),
        **{name: getattr(run, name) for name in _COUNTS},
        "reasons": run.reasons,
        "rejectsKept": run.kept,
        "error": run.error,
    }


def _remedy(run: ImportRun) -> str | None:
    """What to do about an import that was interrupted; None for any other."""
    if run.state != "interrupted":
        return None
    rows = plural(sum(getattr(run, name) for name in _COUNTS), "row")
    return f"Stopped after {rows}: import the same file again; rows already stored stay unchanged."


@imports.command("list")
@click.option("--limit", type=WholeNumber(1, 1_000_000), metavar="N", default=1_000_000, help="At most N imports.")
def list_imports(limit: int) -> None:
    """List imports of orders and pets, newest first, with what they did; dry runs are not recorded.

    The state is running, finished, failed, or interrupted: stopped by a signal, or without a sign of life for 15
    seconds. What an import that did not finish has stored stays in the store; import the file again to add the rest.

    $ petstore imports list --limit 10
    """
    page = with_store(lambda store: store.imports.page(limit))
    listed = list(map(_fields, page.imports))
    show(listed, lambda: table(_TITLES, [[run[name] for name in _NAMES] for run in listed], shrinks=["FILE", "ACTOR"]))


@imports.command("show")
@click.argument("import_id", metavar="ID", type=Stored("id", str, _recent))
@click.option("--rejects", type=FileToWrite(dir_okay=False, allow_dash=True), metavar="FILE", help=_REJECTS)
@click.option("--force", is_flag=True, help="Replace the file of --rejects if it exists.")
def show_import(import_id: str, rejects: str | None, force: bool) -> None:
    """Show what became of the import ID: when and by whom, how many rows, and why rows were rejected.

    --rejects writes the rejected rows with their reasons, as `petstore orders import --rejects` does. The store keeps
    the first 10,000 of an import for 30 days. API keys in them are hidden, and of a text longer than 2,000 characters
    only the beginning is kept.

    $ petstore imports show import-3f2a9c0d1e4b
    $ petstore imports show import-3f2a9c0d1e4b --rejects rejects.jsonl
    """
    if rejects is not None and rejects != STDIN:
        require_writable(rejects, force=force)

    async def read(store: Store) -> tuple[ImportRun, list[str]]:
        run = await store.imports.find(import_id)
        return run, await store.imports.rejects(import_id) if rejects is not None else []

    run, rows = with_store(read)
    if rejects == STDIN:
        for row in rows:
            write_json(json.loads(row))
    else:
        fields = _fields(run)
        texts = {"reasons": "; ".join(run.reasons), "error": run.error or _remedy(run)}
        show(fields, lambda: details({**fields, **texts}.items()))
        if rejects is not None:
            with written_file(rejects, "w", force=force, encoding="utf-8") as file:
                file.writelines(f"{row}\n" for row in rows)
    if rejects is not None and run.kept < run.rejected:
        comment(f"The store has {run.kept} of {plural(run.rejected, 'rejected row')}.")
