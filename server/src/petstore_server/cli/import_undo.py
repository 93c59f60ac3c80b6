"""`petstore orders import-undo`: the question before, and the report after."""

import click

from petstore_server.cli.commands import confirm
from petstore_server.cli.failures import PARTLY_DONE
from petstore_server.cli.output import log_to_stderr, plural, wants_json, write_json
from petstore_server.cli.stores import operator, with_store
from petstore_server.domain.imports import Undo
from petstore_server.operations.undo import UndoReport, undo_import

_SHOWN_IDS = 10
_REASONS = {
    Undo.CHANGED: "changed since the import",
    Undo.NOT_PENDING: "no longer pending",
    Undo.MISSING: "no longer in the store",
}


def undo(import_id: str, dry_run: bool, yes: bool) -> None:
    """Undo an import and print the result; exits with PARTLY_DONE if orders were kept."""
    if not dry_run and not yes:
        question = f"Remove the orders that {import_id} created, and restore those that it replaced?"
        confirm(question, "Nothing was undone.")
    report = with_store(lambda store: undo_import(store, import_id, operator(), dry_run=dry_run))
    if wants_json():
        kept = {outcome.name.lower(): report.kept[outcome] for outcome in _REASONS}
        counts = {str(outcome): count for outcome, count in report.taken_back.items()}
        write_json({"import": import_id, **({"dryRun": True} if dry_run else {}), **counts, "kept": kept})
    else:
        _report(report, dry_run)
    if any(report.kept.values()):
        click.get_current_context().exit(PARTLY_DONE)


def _report(report: UndoReport, dry_run: bool) -> None:
    for outcome, reason in _REASONS.items():
        if ids := report.kept[outcome]:
            more = f" and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else ""
            log_to_stderr(f"{plural(len(ids), 'order')} {reason}: {', '.join(map(str, ids[:_SHOWN_IDS]))}{more}")
    taken_back = ", ".join(f"{count} {outcome}" for outcome, count in report.taken_back.items())
    counts = f"{taken_back}, {sum(map(len, report.kept.values()))} kept."
    log_to_stderr(f"Dry run, nothing was changed: {counts}" if dry_run else f"{report.import_id} undone: {counts}")
