"""Imports as the command line and the console show them."""

from typing import Any

from petstore_server.domain.imports import ImportRun
from petstore_server.domain.timestamps import format_unix


def import_fields(run: ImportRun) -> dict[str, Any]:
    """The record of an import as it is shown: names in camelCase, times as RFC 3339 in UTC."""
    counts = {name: getattr(run, name) for name in ("created", "changed", "unchanged", "rejected")}
    return {
        "id": run.id,
        "kind": run.kind,
        "file": run.file,
        "actor": run.actor,
        "state": run.state,
        "began": format_unix(run.began_at),
        "tookSeconds": round(run.seen_at - run.began_at, 1),
        **counts,
        "reasons": run.reasons,
        "rejectsKept": run.kept,
        "error": run.error,
    }
