"""Puts into the package what is not in its sources: the commit, and the files of Swagger UI with its licenses."""

import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SWAGGER_FILES = ("favicon-32x32.png", "swagger-ui-bundle.js", "swagger-ui.css")


class BuildHook(BuildHookInterface[Any]):
    """`petstore --version` shows the commit. SOURCE_COMMIT names it where there is no git, as in the build of an image.

    A source archive holds both as files of the package, which the wheel that is built from it takes over.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "src/petstore_server/api/page/swagger")
        _copy_swagger_ui(folder)
        for license_file in Path(self.root, "licenses/swagger-ui").iterdir():  # flask-swagger-ui has them in part
            shutil.copy(license_file, folder)
        commit = os.environ.get("SOURCE_COMMIT") or _commit(self.root)
        if commit and version != "editable":  # an editable checkout changes
            file = Path(tempfile.mkdtemp()) / "commit.txt"
            file.write_text(commit + "\n")
            folder = "src/petstore_server" if self.target_name == "sdist" else "petstore_server"
            build_data["force_include"][str(file)] = f"{folder}/commit.txt"


def _copy_swagger_ui(folder: Path) -> None:
    """Copy the files from the installed package, which is not imported: its code is for another framework."""
    package = find_spec("flask_swagger_ui")
    if package is None or package.origin is None:
        if folder.exists():
            return
        raise FileNotFoundError("The package flask-swagger-ui is not installed; the build takes Swagger UI from it.")
    folder.mkdir(exist_ok=True)
    for name in _SWAGGER_FILES:
        shutil.copy(Path(package.origin).with_name("dist") / name, folder)


def _commit(folder: str) -> str:
    if not Path(folder).parent.joinpath(".git").exists():  # a source archive may lie in another project's checkout
        return ""
    command = ["git", "-C", folder, "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - constants
    except (OSError, subprocess.CalledProcessError):  # there is no git
        return ""
