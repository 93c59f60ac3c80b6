"""`petstore db`: the store as a whole: migrate, check, back up, restore, copy to PostgreSQL."""

import os
import re
import time
from pathlib import Path
from stat import S_ISREG

import click

from petstore_server.cli.arguments import FILE, FileToWrite, WholeNumber
from petstore_server.cli.commands import YES, Noun, confirm, operator, settings_here, with_store
from petstore_server.cli.failures import FAILURE, explain
from petstore_server.cli.main import collect_garbage
from petstore_server.cli.output import comment, log_to_stderr, plural, progress, show, show_done
from petstore_server.domain.errors import DomainError, StoreNewer, StoreOutdated
from petstore_server.domain.timestamps import FILE_STAMP, file_stamp
from petstore_server.operations.orders import claim_orders
from petstore_server.runtime import opening
from petstore_server.settings import read_secret
from petstore_server.settings.values import HOLDS_PASSWORD, database_url
from petstore_server.store import Store

_TO = "The database: postgresql://USER@HOST/NAME; with a password only in the variable."
_KEEP = "Put the time into the name, and remove all but the newest N backups that were named like this."
_TO_VERIFY_INDEXES = (
    "To verify the indexes, run in this database as a superuser of PostgreSQL, with the service's user for petstore: "
    "CREATE EXTENSION amcheck; GRANT EXECUTE ON FUNCTION bt_index_check(regclass, boolean) TO petstore; "
    "then run petstore db check again."
)
_DAMAGE_KEPT = (
    "The note of damage was kept, because it may be about an index. Verify the indexes, or rebuild them with "
    "REINDEX SCHEMA petstore, and then run UPDATE petstore.store SET damage = NULL."
)

_NAME_OWNERS = "The audit log does not name the account; import a file of the columns id and account."

db = Noun("db", "$ petstore db backup /backups/orders.db")


@db.command()
def migrate() -> None:
    """Bring the store to the schema of this version, or create a missing store.

    The previous version of this program continues to work on a migrated store; 1.0.0 only until an account sees its own
    orders only. Orders that version 1.0.0 placed get their owners: the accounts whose keys the audit log names.

    $ petstore db migrate
    """
    before, after = opening.migrate_store(settings_here(), log_to_stderr)
    message = f"Migrated the schema from version {before} to {after}."
    if before == 0:
        message = f"The new store has schema version {after}."
    if before == after:
        message = f"The schema has version {after} already; nothing was changed."
    show({"before": before, "after": after}, lambda: message)
    _set_owners()


@db.command()
def check() -> None:
    """Read the whole store and verify it; exit code 1 if it is not sound.

    While damage to the store is known, no server or command accepts a change. A check that finds the store sound ends
    that. PostgreSQL's indexes are verified only if its extension amcheck may be used. Without it, known damage stays
    known, and the exit code is then 1 too.

    $ petstore db check
    """
    try:
        problems, with_indexes = opening.check_store(settings_here())
    except (StoreNewer, StoreOutdated) as error:  # whether it is sound is not known
        raise type(error)(f"Not checked: {error.message}") from None
    sound = "The store is sound." if with_indexes else "The tables are sound. The indexes were not verified."
    fields = {"sound": not problems, "problems": problems, "indexesVerified": with_indexes}
    show(fields, lambda: "\n".join(problems) or sound)
    if problems:
        comment(f"petstore: The store is not sound: {plural(len(problems), 'problem')}.")
        click.get_current_context().exit(FAILURE)
    if not with_indexes:
        comment(_TO_VERIFY_INDEXES)

    async def clear_damage(store: Store) -> int:
        """Remove a note of damage from a store that was verified in full; return the exit code."""
        if store.engine.damage.reason is None:
            return 0
        if not with_indexes:
            comment(_DAMAGE_KEPT)
            return FAILURE
        await store.engine.damage.save(None)
        comment("The note of damage was taken back: start the servers again, which then accept changes.")
        return 0

    click.get_current_context().exit(with_store(clear_damage))


@db.command(writes=True)
@click.argument("file", type=FileToWrite(path_type=Path, dir_okay=False))
@click.option("--keep", type=WholeNumber(1, 10_000), metavar="N", help=_KEEP)
@click.option("--made", is_flag=True, help="Copy nothing: record that another program, such as pg_dump, made FILE now.")
def backup(file: Path, keep: int | None, made: bool) -> None:
    """Copy the store to FILE, consistently even while servers use it.

    The copy is verified before it gets its name. FILE must not exist; with --keep 7, orders.db becomes, for example,
    orders-20261120T093000Z.db, and only after a good backup are older ones removed. PostgreSQL's own tools back up
    PostgreSQL: record with --made when they have succeeded, so that a missing backup is noticed.

    $ petstore db backup /backups/orders-2026-11-20.db
    $ petstore db backup /backups/orders.db --keep 7
    $ petstore db backup orders.dump --made
    """
    if made:
        if keep is not None:
            raise click.UsageError("--made removes nothing: leave out --keep.")
        with_store(lambda store: store.audit.record_backup(file.name, operator()))
        show_done({"backup": str(file), "removed": []}, f"Recorded the backup {file}.")
        return
    began_at = time.time()  # what changes from now on may be missing in it
    target = (file if keep is None else _dated(file, began_at)).absolute()
    with progress("Backing up (pages)") as advance:
        opening.backup_store(settings_here(), target, advance)
    try:
        with_store(lambda store: store.audit.record_backup(target.name, operator(), began_at))
    except DomainError as error:
        log_to_stderr(f"The backup is good but was not recorded in the store: {explain(error).message}")
    older = [] if keep is None else _older_backups(file, target)[keep - 1 :]
    try:
        for path in older:
            path.unlink(missing_ok=True)  # another run may have removed it
    except OSError:
        log_to_stderr(f"The backup {target} is good, but an older one could not be removed.")
        raise
    removed = f" Removed {plural(len(older), 'older backup')}." if older else ""
    show_done({"backup": str(target), "removed": sorted(map(str, older))}, f"Backed up to {target}.{removed}")


@db.command(writes=True)
@click.argument("file", type=FILE)
@YES
def restore(file: Path, yes: bool) -> None:
    """Replace the content of the store by the backup FILE; running servers show it at once.

    Asks first. Changes made since the backup are no longer in the store: cancelled and shipped orders, but also
    revoked and new keys. The previous content is kept in a file next to the store, and the audit log of the restored
    store records the restore. A store that is too damaged to be read is replaced too, while no server has it open.

    $ petstore db restore /backups/orders-2026-11-20.db
    """
    path = opening.sqlite_path(settings_here().database_url)
    if path.exists() and path.samefile(file):
        raise click.UsageError(f"{file} is the store itself; give the file of a backup.")
    if path.exists() and not yes:
        confirm(f"Replace the content of {path} by the backup {file}?", "Nothing was restored.")
    kept = opening.restore_store(settings_here(), file, operator())
    fields, message = {"restored": str(path), "from": str(file.absolute())}, f"Restored {path} from {file}."
    if kept is not None:
        fields["kept"] = str(kept)
        message += f" The previous content is in {kept}. All sessions of the console have ended."
        if opening.was_damaged(kept):
            message += " It was damaged: restart the servers, which accept no change before."
    show_done(fields, message)
    _set_owners()


class _UrlOrFile(click.Option):
    """An option whose environment variable may hold a secret, and may name a file as the settings do."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return read_secret(os.environ, str(self.envvar))


@db.command(writes=True)
@click.option(
    "--to",
    "target",
    cls=_UrlOrFile,
    required=True,
    metavar="URL",
    help=_TO,
    envvar="PETSTORE_COPY_TO_URL",
    show_envvar=True,
)
def copy(target: str) -> None:
    """Copy the whole SQLite store to an empty PostgreSQL database, and verify every row.

    No server may run on the store meanwhile, and commands that would change it fail. An interrupted copy leaves
    nothing behind: run it again. The store itself is not changed. Afterwards set PETSTORE_DATABASE_URL to the URL, and
    PETSTORE_REDIS_URL. All users of a machine see the arguments of a command: a URL with a password is refused there.

    $ petstore db copy --to postgresql://petstore@db.internal/petstore
    """
    try:
        database_url(target)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="'--to'") from None
    if opening.is_sqlite(target):
        raise click.BadParameter("must be postgresql://USER@HOST/NAME.", param_hint="'--to'")
    given = click.get_current_context().get_parameter_source("target")
    if given is click.core.ParameterSource.COMMANDLINE and HOLDS_PASSWORD.search(target):
        problem = "must not hold a password: other users of this machine see the arguments of a command."
        raise click.BadParameter(f"{problem} Set PETSTORE_COPY_TO_URL to the URL instead.", param_hint="'--to'")
    collect_garbage()
    with progress("Copying and verifying (rows)") as advance:
        rows = opening.copy_to_postgres(settings_here(), target, operator(), log_to_stderr, advance)
    counts = ", ".join(f"{count} {name}" for name, count in rows.items())
    show_done({"rows": rows}, f"Copied and verified {plural(sum(rows.values()), 'row')} ({counts}).")


def _set_owners() -> None:
    """Set the owners of orders that 1.0.0 placed, as running servers do too; report how many, and how many are left."""

    async def claim(store: Store) -> tuple[int, int]:
        total, number = await store.orders.count_without_owner(), 0
        async for claimed in claim_orders(store, time.time):
            number += claimed.number
            advance(number, total)
        return number, await store.orders.count_without_owner()

    with progress("Setting owners (orders)") as advance:
        number, left = with_store(claim, concurrent=True)
    if number:
        comment(f"Owners set: {plural(number, 'order')} that version 1.0.0 placed.")
    if left:
        comment(f"Without an owner: {plural(left, 'placed order')}. {_NAME_OWNERS}")


def _older_backups(file: Path, target: Path) -> list[Path]:
    """The backups of FILE that are dated before `target`, newest first.

    One dated later, by a clock that was wrong, neither counts nor is removed.
    """
    name = re.compile(rf"{re.escape(file.stem)}-{FILE_STAMP}{re.escape(file.suffix)}", re.ASCII)
    own = target.stat().st_uid  # in a shared directory others must not be able to make these be removed
    dated = (path for path in target.parent.iterdir() if name.fullmatch(path.name) and path < target)
    return sorted(
        (path for path in dated if S_ISREG(path.lstat().st_mode) and path.lstat().st_uid == own), reverse=True
    )


def _dated(file: Path, at: float) -> Path:
    """The name with a time, such as orders-20261120T093000Z.db; the next free second if it is taken."""
    while os.path.lexists(dated := file.with_name(f"{file.stem}-{file_stamp(at)}{file.suffix}")):
        at += 1
    return dated
