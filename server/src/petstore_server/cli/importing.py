"""Runs the import commands and prints their results. Only they import this module, because it loads much."""

import errno
import gc
import os
import shlex
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import IO, Any

import click

from petstore_server.cli.commands import operator, require_writable, settings_here, with_store, written_file
from petstore_server.cli.failures import PARTLY_DONE
from petstore_server.cli.output import Advance, comment, log_to_stderr, plural, progress, wants_json, write_json
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.remedies import Choice, with_remedy
from petstore_server.imports.files import Source, UnreadableFile, open_source
from petstore_server.imports.json_rows import JQ_ROUNDS
from petstore_server.imports.kinds import RecordKind, T
from petstore_server.imports.options import STDIN, ReadOptions
from petstore_server.imports.rejects import Rejects
from petstore_server.imports.running import FileImport
from petstore_server.partial_files import TEMPORARY, require_unshared
from petstore_server.runtime.opening import opened_store, rows_at_once
from petstore_server.store import Store

_PROGRESS_SECONDS = 0.2
STEPS = {
    "unpacked": "unpack it, or pipe it: {} | petstore orders import -",
    "without_lines": "leave out what is above it: (tail -n +{} FILE; echo) | petstore orders import - --format csv",
    "array": f"take the array out ({JQ_ROUNDS}): jq -c '{{}}' FILE | petstore orders import - --format jsonl",
    "one_per_line": f"convert it ({JQ_ROUNDS}): jq -c . FILE | petstore orders import - --format jsonl",
    "create_account": "`petstore accounts create {} --plan free`",
    "number": "give --map {} or give --map COLUMN=reference",
    "header": "put a header before it: (echo '{}'; cat FILE; echo) | petstore orders import - --format csv",
    "tab_header": r"put a header before it: (printf '{}\n'; cat FILE; echo) | petstore orders import - --format csv",
}
"""Steps that are not options, by the names of their choices."""
_OBJECTS_PER_COLLECTION = 100_000
MAX_BOUNDED_ROWS = 2_000_000
"""Rows that a bounded check reads: a row takes 6 µs, and a valid one 200 bytes of the scratch store, however short."""


def import_file(
    kind: RecordKind[T],
    file: str,
    *,
    rejects: str | None,
    force: bool,
    dry_run: bool,
    progress_lines: bool,
    name: str | None,
    bounded: bool = False,
    phrases: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    """Import a file, read with `options`, and print the result; exits with PARTLY_DONE if rows were rejected.

    `phrases` has how a choice is made, by its name, with {} for the value; for others it is their option.
    """
    reading = ReadOptions(**options)
    known = (*kind.fields, *kind.flags)
    if unknown := [field for _, field in reading.columns if field not in known]:
        message = f"'{unknown[0]}' is not a field; the fields are {', '.join(known)}."
        raise click.BadParameter(message, param_hint="'--map'")
    if progress_lines and not wants_json():
        raise click.UsageError("--progress is for programs; give --json too.")
    if file == STDIN and sys.stdin.isatty():
        log_to_stderr(f"Reading {kind.noun}s from the terminal; end with Ctrl-D, stop with Ctrl-C.")
    with open_source(file) as source, _created(rejects, source, force=force) as rejects_file:

        def phrase(choice: Choice) -> str:
            return phrased(choice, phrases or _steps(source, kind.noun, dry_run))

        collected = Rejects(rejects_file, phrase=phrase, bounded=bounded)
        run = FileImport(kind, source, reading, collected, name or Path(file).name)
        what = f"{'Checking' if dry_run else 'Importing'} {kind.noun}s"
        shown = _progress_lines(run, dry_run) if progress_lines else progress(what)
        with _stop_reported(run, kind.noun, dry_run), shown as advance:
            try:
                _run(run, dry_run, source.size, advance, MAX_BOUNDED_ROWS if bounded else None)
            except UnreadableFile as error:
                raise UnreadableFile(with_remedy(error.message, error.remedy, phrase)) from error
    _report(run, rejects, dry_run, preview=bounded)
    if run.rejects.count or run.doubt:
        click.get_current_context().exit(PARTLY_DONE)


def phrased(choice: Choice, phrases: Mapping[str, str] = STEPS) -> str:
    """How the choice is made: by its option, unless `phrases` has another way."""
    option = f"give --{choice.name.replace('_', '-')} {{}}"
    if choice.name in phrases:
        return choice.filled(phrases[choice.name])
    return Choice(choice.name, choice.value and shlex.quote(choice.value)).filled(option)


def _steps(source: Source, noun: str, dry_run: bool) -> Mapping[str, str]:
    """The steps for a file: most programs know neither UTF-16, nor a byte order mark, nor lines that end with CR."""
    file = f"<(iconv -f {source.encoding} -t utf-8 FILE)" if source.encoding else "FILE"
    if source.has_utf8_mark:
        file = "<(tail -c +4 FILE)"
    if source.has_cr_lines:
        file = rf"<(cat {file} | tr '\r' '\n')"
    command = f"petstore {noun}s import{' --dry-run' if dry_run else ''}"
    return {name: text.replace("FILE", file).replace("petstore orders import", command) for name, text in STEPS.items()}


def arguments(options: ReadOptions) -> Iterator[str]:
    """How these are given on the command line, quoted for a shell."""
    yield from (f"--map {shlex.quote(f'{name}={field}')}" for name, field in options.columns)
    yield from (f"--map-status {shlex.quote(f'{text}={status}')}" for text, status in options.statuses)
    if options.split_lines:
        yield "--split-lines"
    if options.date_format:
        yield f"--date-format {shlex.quote(options.date_format)}"
    yield from (f"--ignore-column {shlex.quote(name)}" for name in options.ignored)


def _run(run: FileImport[T], dry_run: bool, size: int | None, advance: Advance, most: int | None) -> None:
    # An import makes millions of objects, and no reference cycles: looking for these takes a tenth of its time.
    gc.set_threshold(_OBJECTS_PER_COLLECTION)

    async def work(store: Store) -> None:
        at_once = partial(rows_at_once, settings_here())
        opened = scratch_store(store.orders.first_assigned) if dry_run else nullcontext()
        async with opened as scratch, aclosing(run.run(store, operator, scratch, at_once)) as batches:
            async for _ in batches:
                rejected = f"{run.rejects.count:,} rejected" if run.rejects.count else ""
                rows = sum(run.counts.values())
                advance(run.position, size, rows, rejected)
                if most is not None and rows > most:
                    raise UnreadableFile(f"The file has more than {most:,} rows; `petstore orders import` reads them.")

    with_store(work, concurrent=True)


@asynccontextmanager
async def scratch_store(first_assigned: int = 1) -> AsyncIterator[Store]:
    """An empty SQLite store for a dry run, in the system's directory for temporary files; deleted at the end."""
    require_unshared(Path(gettempdir()), TEMPORARY)
    with TemporaryDirectory(prefix="petstore-scratch-", ignore_cleanup_errors=True) as directory:
        try:
            async with opened_store(f"sqlite:///{directory}/scratch.db", create=True, migrate=True) as store:
                store.orders.first_assigned = first_assigned
                yield store
        except ServiceUnavailable as error:
            if not error.full:
                raise
            # Not that of the store itself, which is only read meanwhile.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), gettempdir()) from error


@contextmanager
def _created(name: str | None, source: Source, *, force: bool) -> Iterator[IO[str] | None]:
    """The rejects file, written line by line so that an interrupted import loses none of it. Raises Conflict.

    One that is empty when the import fails is removed, so that the command can be repeated.
    """
    if name is None:
        yield None
        return
    path = Path(name)
    if source.is_at(path):
        raise click.UsageError("--rejects names the file that is imported; choose another file.")
    require_writable(name, force=force)
    options: Any = {"at_once": True, "encoding": "utf-8", "buffering": 1, "newline": "\n"}
    with written_file(name, "w", force=force, **options) as file:
        try:
            yield file
        except BaseException:
            made = os.fstat(file.fileno())
            with suppress(FileNotFoundError):  # and not if it is a pipe or a device, or has been replaced
                if stat.S_ISREG(made.st_mode) and not made.st_size and os.path.samestat(made, path.lstat()):
                    path.unlink()
            raise


@contextmanager
def _progress_lines(run: FileImport[Any], dry_run: bool) -> Iterator[Advance]:
    """Write to stdout how far the import is, several times a second and at the end. Raises BrokenPipeError."""
    written = 0.0

    def advance(*_: object, **__: object) -> None:
        nonlocal written
        if run.position and time.monotonic() - written >= _PROGRESS_SECONDS:
            written = time.monotonic()
            write_json({"position": run.position, **_result(run, dry_run)})
            sys.stdout.flush()

    try:
        yield advance
    finally:
        written = 0.0
        advance()


@contextmanager
def _stop_reported(run: FileImport[Any], noun: str, dry_run: bool) -> Iterator[None]:
    """Report what was imported if the import ends before the end of the file."""
    try:
        yield
    except BaseException:
        for line in run.rejects.summary():
            comment(line)
        if run.imported and not dry_run:
            kept = f"Stopped after {plural(run.imported, noun)}; what was imported is in the store ({run.import_id})."
            comment(f"{kept} Import the file again to add the rest.")
        raise


def _result(run: FileImport[Any], dry_run: bool) -> dict[str, Any]:
    return {**({"dryRun": True} if dry_run else {"import": run.import_id}), **run.counts}


def _reasons(run: FileImport[Any]) -> dict[str, Any]:
    """Why rows were rejected, in sentences and as values."""
    rejects = run.rejects
    return {"reasons": list(rejects.summary()), "problems": rejects.problems()} if rejects.count else {}


def _report(run: FileImport[Any], rejects_file: str | None, dry_run: bool, *, preview: bool) -> None:
    if wants_json():
        changed = {"historyChanged": run.history_changed, "fileChanged": run.file_changed}
        more = {"warnings": run.warnings, "left": run.left, **changed}
        more |= {"preview": run.preview, "statuses": list(run.schema.statuses.found.values())} if preview else {}
        write_json(_result(run, dry_run) | _reasons(run) | {name: value for name, value in more.items() if value})
        return
    if dry_run and run.schema.of_shop:
        log_to_stderr(f"--shop {run.schema.options.shop} stands for: {' '.join(arguments(run.schema.of_shop))}")
    log_to_stderr(*run.rejects.summary(), *run.warnings)
    listed = ", ".join(f"{count} {name}" for name, count in run.counts.items())
    unchanged = f"Nothing was changed: {listed} ({run.import_id})."
    done = f"{run.import_id}: {listed}." if run.counts["created"] or run.counts["replaced"] else unchanged
    log_to_stderr(f"Dry run, nothing was changed: {listed}." if dry_run else done)
    if run.left:
        log_to_stderr(f"The store has lines that the file no longer has; they stay as they are: {', '.join(run.left)}.")
    if run.doubt:
        log_to_stderr(run.doubt)
    if run.rejects.count:
        written = f"{plural(run.rejects.count, 'rejected row')} with reasons: {rejects_file}"
        log_to_stderr(written if rejects_file else "--rejects FILE writes every rejected row with its reason.")
