"""`petstore db copy`: from the SQLite file to PostgreSQL, when one process is no longer enough."""

import asyncio
from contextlib import aclosing

import click

from petstore_server.cli.commands import WritingCommand
from petstore_server.cli.output import log_to_stderr, plural, show_done
from petstore_server.cli.progress import progress
from petstore_server.cli.stores import installation, operator
from petstore_server.settings import SettingsError, read_settings


@click.command(cls=WritingCommand)
@click.option(
    "--to", "target", required=True, metavar="URL", help="The PostgreSQL database: postgresql://USER@HOST/NAME."
)
def copy(target: str) -> None:
    """Copy the whole SQLite store to an empty PostgreSQL database, and verify every row.

    No server may run on the store meanwhile, and commands that would change it fail. An interrupted
    copy leaves nothing behind: run it again. The store itself is not changed. Afterwards set PETSTORE_DATABASE_URL to
    the URL, and PETSTORE_REDIS_URL.

    $ petstore db copy --to postgresql://petstore@db.internal/petstore
    """
    if not target.startswith(("postgresql://", "postgres://")):
        raise click.BadParameter("must be postgresql://USER@HOST/NAME.", param_hint="--to")
    try:
        read_settings({"PETSTORE_DATABASE_URL": target})
    except SettingsError as error:
        reason = str(error).removeprefix("PETSTORE_DATABASE_URL ")
        raise click.BadParameter(reason, param_hint="--to") from None
    asyncio.run(_copy(target))


async def _copy(target: str) -> None:
    async with installation().copying(target, log_to_stderr, operator()) as work:
        total = sum(work.rows.values())
        async with aclosing(work.run()) as steps:
            with progress("Copying and verifying (rows)", total) as advance:
                async for done in steps:
                    advance(done)
    counts = ", ".join(f"{count} {name}" for name, count in work.rows.items())
    show_done({"rows": work.rows}, f"Copied and verified {plural(total, 'row')} ({counts}).")
