"""The options of the import commands, and what these print."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import tzinfo
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from petstore_server.cli.arguments import FileToWrite
from petstore_server.cli.failures import PARTLY_DONE
from petstore_server.cli.output import log_to_stderr, plural, wants_json, write_json
from petstore_server.cli.progress import progress
from petstore_server.cli.stores import operator, settings_here, with_store
from petstore_server.formats.conversions import check_date_format, check_encoding, parse_mapping, parse_timezone
from petstore_server.formats.kinds import EVERY_COLUMN, ReadOptions
from petstore_server.formats.reading import FORMATS, STDIN, open_source
from petstore_server.formats.rejects import Rejects
from petstore_server.operations.imports import HISTORY_CHANGED, FileImport, Subject, T
from petstore_server.runtime import engines
from petstore_server.runtime.scratch import scratch_store
from petstore_server.settings import SettingsError
from petstore_server.store import Store

_SHOWN_REASONS = 20
Command = TypeVar("Command", bound=Callable[..., Any])


class _Checked(click.ParamType[Any]):
    """Text that a function checks, which raises ValueError with the end of a sentence about it."""

    def __init__(self, name: str, check: Callable[[str], Any]) -> None:
        self.name = name
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._check(value)
        except ValueError as error:
            self.fail(f"'{value}' {error}.", param, ctx)


FORMAT = click.option(
    "--format", "file_format", type=click.Choice(FORMATS), help="The format, if the name of the file does not show it."
)
_OPTIONS = (
    FORMAT,
    click.option(
        "--rejects",
        type=FileToWrite(),
        metavar="FILE",
        help="Write rejected rows here, as JSON Lines with the reason.",
    ),
    click.option("--dry-run", is_flag=True, help="Report what the import would do, and change nothing."),
    click.option(
        "--map",
        "columns",
        type=_Checked("mapping", parse_mapping),
        metavar="COLUMN=FIELD",
        multiple=True,
        help="The field that a column with another name holds; repeatable.",
    ),
    click.option(
        "--ignore-column",
        "ignored",
        metavar="COLUMN",
        multiple=True,
        help=f"A column to leave out; repeatable. '{EVERY_COLUMN}' is every column that is not a field.",
    ),
    click.option(
        "--encoding",
        type=_Checked("encoding", check_encoding),
        metavar="NAME",
        help="The encoding, if it is neither UTF-8 nor UTF-16 with a byte order mark; such as windows-1252.",
    ),
)
_DATE_OPTIONS = (
    click.option(
        "--timezone",
        "zone",
        type=_Checked("zone", parse_timezone),
        metavar="ZONE",
        help="The time zone of times without a UTC offset, such as Europe/Berlin or +01:00.",
    ),
    click.option(
        "--date-format",
        type=_Checked("format", check_date_format),
        metavar="FORMAT",
        help="The form of timestamps that are not RFC 3339, such as '%d/%m/%Y %H:%M'.",
    ),
)


def import_options(command: Command) -> Command:
    """Add the options of an import to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def date_options(command: Command) -> Command:
    """Add the options for timestamps."""
    for option in reversed(_DATE_OPTIONS):
        command = option(command)
    return command


def import_file(
    subject: Subject[T],
    file: str,
    *,
    file_format: str | None,
    rejects: str | None,
    dry_run: bool,
    columns: tuple[tuple[str, str], ...],
    ignored: tuple[str, ...],
    encoding: str | None,
    zone: tzinfo | None = None,
    date_format: str | None = None,
) -> None:
    """Import a file and print the result; exits with PARTLY_DONE if rows were rejected."""
    for _, field in columns:
        if field not in subject.kind.fields:
            known = ", ".join(subject.kind.fields)
            raise click.BadParameter(f"'{field}' is not a field; the fields are {known}.", param_hint="--map")
    options = ReadOptions(file_format, encoding, zone, date_format, dict(columns), frozenset(ignored))
    if file == STDIN and sys.stdin.isatty():
        log_to_stderr(f"Reading {subject.kind.noun}s from the terminal; end with Ctrl-D, stop with Ctrl-C.")
    with ExitStack() as stack:
        source = stack.enter_context(open_source(file))
        rejected = Rejects(stack.enter_context(_created(rejects, file)))
        verb = "Checking" if dry_run else "Importing"
        advance = stack.enter_context(progress(f"{verb} {subject.kind.noun}s", source.size))

        def on_batch() -> None:
            rows = sum(run.counts.values())
            advance(run.position, rows, f"{rejected.count:,} rejected" if rejected.count else "")

        run = FileImport(subject, source, options, rejected, on_batch)
        try:
            _run(run, dry_run)
        except BaseException:
            try:
                stack.close()
            finally:  # closing a file on a full disk fails again
                if not wants_json():
                    _report_stop(run, subject.kind.noun, dry_run)
            raise
    _report(run, rejects, dry_run)
    if rejected.count or run.history_changed:
        click.get_current_context().exit(PARTLY_DONE)


def _run(run: FileImport[T], dry_run: bool) -> None:
    if not dry_run:
        with_store(lambda store: run.run(store, operator()), writes=True)
        return

    async def check(store: Store | None = None) -> None:
        async with scratch_store() as scratch:
            await run.dry_run(store, scratch, operator())

    if _store_is_missing():  # every row would be new
        asyncio.run(check())
    else:
        with_store(check)


def _store_is_missing() -> bool:
    try:
        return not engines.sqlite_path(settings_here().database_url).exists()
    except SettingsError:  # another engine, whose store is opened to find out
        return False


@contextmanager
def _created(name: str | None, source: str) -> Iterator[TextIO | None]:
    """The rejects file, written line by line so that an interrupted import loses none of it."""
    if name is None:
        yield None
        return
    path = Path(name)
    if source != STDIN and path.exists() and path.samefile(source):
        raise click.UsageError("--rejects names the file that is imported; choose another file.")
    with path.open("w", encoding="utf-8", buffering=1, newline="\n") as file:
        yield file


def _report_stop(run: FileImport[Any], noun: str, dry_run: bool) -> None:
    _report_reasons(run)
    if run.imported and not dry_run:
        name = f" ({run.import_id})" if run.has_changes else ""
        log_to_stderr(
            f"Stopped after {plural(run.imported, noun)}; what was imported is in the store{name}. "
            "Import the file again to add the rest."
        )


def _report_reasons(run: FileImport[Any]) -> None:
    for line in run.rejects.summary(_SHOWN_REASONS):
        log_to_stderr(line)


def _report(run: FileImport[Any], rejects_file: str | None, dry_run: bool) -> None:
    counts = {str(outcome): count for outcome, count in run.counts.items()}
    if wants_json():
        changed = {"historyChanged": True} if run.history_changed else {}
        named = {"import": run.import_id} if run.has_changes else {}
        write_json({"dryRun": True, **counts} if dry_run else {**named, **counts, **changed})
        return
    _report_reasons(run)
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    name = run.import_id if run.has_changes else "Nothing was changed"
    log_to_stderr(f"Dry run, nothing was changed: {listed}." if dry_run else f"{name}: {listed}.")
    if run.history_changed:
        log_to_stderr(HISTORY_CHANGED)
    if not run.rejects.count:
        return
    if rejects_file is None:
        log_to_stderr("--rejects FILE writes every rejected row with its reason.")
    else:
        log_to_stderr(f"{plural(run.rejects.count, 'rejected row')} with reasons: {rejects_file}")
