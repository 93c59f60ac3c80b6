"""Puts the commit from which a wheel is built into it; `petstore --version` shows it."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """SOURCE_COMMIT names the commit where there is no git, as in the build of an image."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        commit = os.environ.get("SOURCE_COMMIT") or _commit(self.root)
        if commit and version != "editable":  # an editable checkout changes
            file = Path(tempfile.mkdtemp()) / "commit.txt"
            file.write_text(commit + "\n")
            build_data["force_include"][str(file)] = "petstore_server/commit.txt"


def _commit(folder: str) -> str:
    command = ["git", "-C", folder, "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - constants
    except (OSError, subprocess.CalledProcessError):  # there is no git, or this is no checkout
        return ""
