"""Examples of the guide in other languages than Python, as its readers run them."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from testing import needs
from testing.documents import block
from testing.subprocesses import PATIENCE

_PROGRAMS = {"javascript": ("node", "nodejs"), "php": ("php", "php-cli")}
"""The program that runs a language, and Debian's package of it."""


def command_of(page: Path, language: str, folder: Path) -> list[str]:
    """The command that runs the example of a page, which is written into the folder."""
    program, package = _PROGRAMS[language]
    example = block(page, f"runs in {program}", language)
    assert example
    script = folder / "example.mjs"
    script.write_text(example)
    return [needs.program(program, package), str(script)]


def run_example(
    page: Path, language: str, environ: Mapping[str, str], folder: Path
) -> "subprocess.CompletedProcess[str]":
    """Run the example of a page to its end."""
    command, given = command_of(page, language, folder), {**os.environ, **environ}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
