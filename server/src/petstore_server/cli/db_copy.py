"""`petstore db copy`: from the SQLite file to PostgreSQL, for who outgrows one process."""

import asyncio

import click

from petstore_server.cli.console import Command, log_to_stderr, wants_json, write_json
from petstore_server.cli.progress import progress
from petstore_server.cli.stores import settings_here
from petstore_server.runtime import backend
from petstore_server.settings import Settings
from petstore_server.storage import engines


@click.command(cls=Command)
@click.option(
    "--to", "target", required=True, metavar="URL", help="The PostgreSQL database: postgresql://USER@HOST/NAME."
)
def copy(target: str) -> None:
    """Copy the whole SQLite store to an empty PostgreSQL database, and verify every row.

    No server may run on the store meanwhile, and commands that would change it fail. After an interruption, run it
    again: it continues where it stopped. The store itself stays as it is; afterwards set PETSTORE_DATABASE_URL to the
    URL, and PETSTORE_REDIS_URL.

    \b
    Example:
      petstore db copy --to postgresql://petstore@db.internal/petstore
    """
    if engines.is_sqlite(target) or not target.startswith(("postgresql://", "postgres://")):
        raise click.BadParameter("must be postgresql://USER@HOST/NAME.", param_hint="--to")
    engines.require_driver()
    asyncio.run(_copy(settings_here(), target))


async def _copy(settings: Settings, target: str) -> None:
    from petstore_server.storage.copying import copying  # needs the driver, which is an extra

    async with copying(backend.store_path(settings), target, log_to_stderr) as work:
        total = sum(work.rows.values())
        with progress("Copying (rows)", total) as advance:
            await work.take(advance)
        with progress("Verifying (rows)", total) as advance:
            copied = await work.verify(advance)
    if wants_json():
        write_json({"rows": copied.rows, "etag": copied.etag})
        return
    told = ", ".join(f"{count} {name}" for name, count in copied.rows.items())
    log_to_stderr(f"Copied and verified: {told}. Both lists have the ETag {copied.etag}.")
