"""Transcripts of commands: Markdown with files, commands, and what these print. Each section is a test by itself.

A block whose first line names a file, such as ```` ```csv orders.csv ````, is that file. In a block of `console` each
line that begins with `$ ` is run in their directory: `petstore` in this process, other programs by `sh`. Below it are
the lines that it writes to stdout and then to stderr, without identifiers of imports and the time, and its exit code
in brackets unless that is 0. `shops/` and `exports/` are those of the test data. `<!-- needs: jq -->` names programs of
Debian.

    python -m testing.transcripts    writes what the commands print now: read the difference before you commit it
"""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from testing.cli import CommandLine
from testing.documents import ROOT
from testing.subprocesses import PATIENCE

TESTS = ROOT / "server" / "tests"
TRANSCRIPTS = sorted((TESTS / "transcripts").glob("*.md"))
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CONSOLE = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
_NEEDS = re.compile(r"<!-- needs: (.+?) -->")
_CHANGES = ((re.compile(r"import-[0-9a-f]{12}"), "import-ID"), (re.compile(r"(?<=created at:    )\S+"), "NOW"))


class Section(NamedTuple):
    """A section of a transcript; `needs` are programs."""

    name: str
    text: str
    needs: list[str]

    @property
    def commands(self) -> list[str]:
        """The commands, in their order."""
        blocks = _CONSOLE.findall(self.text)
        return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]

    def replayed(self) -> str:
        """The text with what the commands print now."""
        with TemporaryDirectory() as name, chdir(name):
            folder = Path(name)
            for data in ("shops", "exports"):
                (folder / data).symlink_to(TESTS / "data" / data)
            for file, content in _FILE.findall(self.text):
                (folder / file).write_text(content, "utf-8")
            cli = CommandLine(folder / "store.db")
            return _CONSOLE.sub(lambda block: "".join(_replayed(cli, block[1])), self.text)


def sections(transcript: Path) -> list[Section]:
    """The sections of a transcript, in their order."""
    found = _SECTION.findall(transcript.read_text("utf-8"))
    return [Section(name, text, " ".join(_NEEDS.findall(text)).split()) for name, text in found]


def _replayed(cli: CommandLine, block: str) -> Iterator[str]:
    for line in block.splitlines():
        if line.startswith("$ "):
            yield f"{line}\n{_run(cli, line.removeprefix('$ '))}"


def _run(cli: CommandLine, command: str) -> str:
    source, separator, own = command.rpartition("petstore ")
    stdin = _shell(source.removesuffix(" | ")) if source else None
    if not separator:
        return _shell(command).decode()
    done = cli(*shlex.split(own), stdin=stdin)
    printed = "".join(f"{line}\n".lstrip("\n") for line in (done.out + done.err).splitlines())
    for changes, shown in _CHANGES:
        printed = changes.sub(shown, printed)
    return printed + (f"[{done.code}]\n" if done.code else "")


def _shell(script: str) -> bytes:
    return subprocess.run(["sh", "-ec", script], check=True, capture_output=True, timeout=PATIENCE).stdout


if __name__ == "__main__":
    for path in TRANSCRIPTS:
        text = path.read_text("utf-8")
        for section in sections(path):
            text = text.replace(section.text, section.replayed())
        path.write_text(text, "utf-8")
