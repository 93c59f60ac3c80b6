"""Puts the commit from which a distribution is built into it; `petstore --version` shows it."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """SOURCE_COMMIT names the commit where there is no git, as in the build of an image.

    A source archive holds the commit as a file of the package, which the wheel that is built from it takes over.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        commit = os.environ.get("SOURCE_COMMIT") or _commit(self.root)
        if commit and version != "editable":  # an editable checkout changes
            file = Path(tempfile.mkdtemp()) / "commit.txt"
            file.write_text(commit + "\n")
            folder = "src/petstore_server" if self.target_name == "sdist" else "petstore_server"
            build_data["force_include"][str(file)] = f"{folder}/commit.txt"


def _commit(folder: str) -> str:
    if not Path(folder).parent.joinpath(".git").exists():  # a source archive may lie in another project's checkout
        return ""
    command = ["git", "-C", folder, "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - constants
    except (OSError, subprocess.CalledProcessError):  # there is no git
        return ""
