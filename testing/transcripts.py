"""Transcripts of commands: Markdown with files, commands, and what these print. Each section is a test by itself.

A block whose first line names a file, such as ```` ```csv orders.csv ````, is that file. In a block of `console` each
line that begins with `$ ` is run in their directory: `petstore`, with settings before it and a pipe behind it, in this
process, as the operator ada at 2026-11-20T10:00:00Z; `sql` executes a statement on the file of the store; other
programs are run by `sh`. Below it are the lines that it writes to stdout and then to stderr, without the texts of
secrets, and its exit code in brackets unless that is 0. Identifiers of keys and webhooks have numbers: the first that a
section shows is `key_000000000001`, also in its commands, where `import-ID` is the last import. `shops/` and `exports/`
are those of the test data. `<!-- needs: jq -->` names programs of Debian.

    python -m testing.transcripts    writes what the commands print now: read the difference before you commit it
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest.mock import patch

from testing.cli import CommandLine
from testing.documents import ROOT
from testing.subprocesses import PATIENCE

TESTS = ROOT / "server" / "tests"
TRANSCRIPTS = sorted((TESTS / "transcripts").glob("*.md"))
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CONSOLE = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
_NEEDS = re.compile(r"<!-- needs: (.+?) -->")
_CHANGES = (
    (re.compile(r"pso_(live|test)_[0-9A-Za-z]{33}"), r"pso_\1_TEXT"),
    (re.compile(r"whsec_[\w+/=]{44}"), "whsec_TEXT"),
)
_IDENTIFIER = re.compile(r"\b(?:(key|wh)_[0-9A-Za-z]{12}|import-[0-9a-f]{12})\b")
_NO_PORTS = ["PETSTORE_PORT=0", "PETSTORE_ADMIN_PORT=0"]  # those of other programs would be seen
_NOW = datetime(2026, 11, 20, 10, tzinfo=UTC).timestamp()


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
        as_ada = patch.dict(os.environ, {"SUDO_USER": "ada"})
        with TemporaryDirectory() as name, chdir(name), patch("time.time", lambda: _NOW), as_ada:
            os.environ.pop("KUBERNETES_SERVICE_HOST", None)  # in a pod, messages on settings say more
            folder = Path(name).resolve()
            for data in ("shops", "exports"):
                (folder / data).symlink_to(TESTS / "data" / data)
            for file, content in _FILE.findall(self.text):
                (folder / file).write_text(content, "utf-8")
            cli, names = CommandLine(folder / "store.db"), dict[str, str]()
            return _CONSOLE.sub(lambda block: "".join(_replayed(cli, names, block[1])), self.text)


def sections(transcript: Path) -> list[Section]:
    """The sections of a transcript, in their order."""
    found = _SECTION.findall(transcript.read_text("utf-8"))
    return [Section(name, text, " ".join(_NEEDS.findall(text)).split()) for name, text in found]


def _replayed(cli: CommandLine, names: dict[str, str], block: str) -> Iterator[str]:
    for line in block.splitlines():
        if line.startswith("$ "):
            yield f"{line}\n{_run(cli, names, line.removeprefix('$ '))}"


def _run(cli: CommandLine, names: dict[str, str], command: str) -> str:
    """Run a command; return what it prints. `names` has the name in the transcript of each identifier seen so far."""
    for identifier, name in reversed(names.items()):
        command = command.replace(name, identifier)
    if command.startswith("sql "):
        cli.execute(command.removeprefix("sql "))
        return ""
    before, separator, own = command.rpartition("petstore ")
    if not separator:
        return _shell(command).decode()
    own, _, reader = own.partition(" | ")
    pipe = before.endswith("| ")
    settings = dict(word.split("=", 1) for word in (*_NO_PORTS, *([] if pipe else shlex.split(before))))
    done = cli(*shlex.split(own), stdin=_shell(before.removesuffix("| ")) if pipe else None, **settings)
    out = _shell(f"{reader} || true", done.out.encode()).decode() if reader else done.out
    printed = "".join(f"{line}\n".lstrip("\n") for line in (out + done.err).splitlines())
    printed = _IDENTIFIER.sub(lambda found: names.setdefault(found[0], _name(found, len(names) + 1)), printed)
    printed = printed.replace(f"{Path.cwd()}/", "FOLDER/")
    for changes, shown in _CHANGES:
        printed = changes.sub(shown, printed)
    return printed + (f"[{done.code}]\n" if done.code else "")


def _name(identifier: re.Match[str], number: int) -> str:
    return f"{identifier[1]}_{number:012}" if identifier[1] else "import-ID"


def _shell(script: str, stdin: bytes = b"") -> bytes:
    command = ["sh", "-ec", script]
    return subprocess.run(command, input=stdin, check=True, capture_output=True, timeout=PATIENCE).stdout


if __name__ == "__main__":
    for path in TRANSCRIPTS:
        text = path.read_text("utf-8")
        for section in sections(path):
            text = text.replace(section.text, section.replayed())
        path.write_text(text, "utf-8")
