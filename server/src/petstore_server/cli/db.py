"""`petstore db`: the store itself: migrate, check, back up, restore, copy."""

import sys
from pathlib import Path

import click

from petstore_server.cli.console import FAILURE, Group, log_to_stderr, show, wants_json, write_json
from petstore_server.cli.db_copy import copy
from petstore_server.cli.progress import progress
from petstore_server.cli.stores import operator, settings_here
from petstore_server.runtime import backend


@click.group(cls=Group)
def db() -> None:
    """The store itself, which PETSTORE_DATABASE_URL names: migrate, check, back up, restore, copy.

    \b
    Example:
      petstore db backup /backups/orders.db
    """


db.add_command(copy)


@db.command()
def migrate() -> None:
    """Bring the store to the schema of this version; a missing store is made.

    The version before this one goes on working on a migrated store.

    \b
    Example:
      petstore db migrate
    """
    before, after = backend.migrate_store(settings_here(), log_to_stderr)
    told = f"The schema was migrated from version {before} to {after}."
    if before == after:
        told = f"The schema is at version {after}; nothing was to be done."
    show({"before": before, "after": after}, lambda: told)


@db.command()
def check() -> None:
    """Read all of the store and verify that it is sound; exit code 1 where it is not.

    \b
    Example:
      petstore db check
    """
    problems = backend.check_store(settings_here())
    show({"sound": not problems, "problems": problems}, lambda: "\n".join(problems) or "The store is sound.")
    if problems:
        click.get_current_context().exit(FAILURE)


@db.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def backup(file: Path) -> None:
    """Copy the store to FILE, consistent even while servers work on it.

    \b
    Example:
      petstore db backup /backups/orders-2026-11-20.db
    """
    with progress("Backing up (pages)") as advance:
        backend.backup_store(settings_here(), file, lambda done, total: advance(done))
    _done({"backup": str(file.absolute())}, f"Backed up to {file.absolute()}.")


@db.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(file: Path, yes: bool) -> None:
    """Replace the content of the store by the backup FILE; running servers see it at once.

    Asks first if stdin is a terminal. The previous content is kept in a file next to the store, and the audit log of
    the restored store records the restore. A store too damaged to be opened is replaced too, for which no server may
    run.

    \b
    Example:
      petstore db restore /backups/orders-2026-11-20.db
    """
    settings = settings_here()
    path = backend.store_path(settings)
    if path.exists() and sys.stdin.isatty() and not yes:
        question = f"Replace the content of {path} by that of {file}?"
        if not click.confirm(question, err=True):
            raise click.ClickException("Nothing was restored.")
    kept = backend.restore_store(settings, file, operator())
    fields = {"restored": str(path), "from": str(file.absolute())}
    if kept is None:
        _done(fields, f"Restored {path} from {file}.")
    else:
        _done({**fields, "kept": str(kept)}, f"Restored {path} from {file}. The previous content is in {kept}.")


def _done(fields: dict[str, str], told: str) -> None:
    if wants_json():
        write_json(fields)
    else:
        log_to_stderr(told)
