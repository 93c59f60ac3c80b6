"""Parse the repository's documents for tests: examples, links, headings, tables.

A comment before a fenced `sh` block marks it as an example to run, with `sh -eu`:

    <!-- runs -->             every command succeeds
    <!-- runs: 200 404 -->    the same, and the HTTP responses in its output have these statuses, in this order
    <!-- runs: serves -->     the same, and the last line, `petstore serve`, serves what the other lines created

The blocks of one document share a directory and a store, `orders.db`, which a server uses. KEY and API are set, and the
default addresses of a server are replaced by the addresses of this one.
"""

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from testing.subprocesses import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "server" / "src" / "petstore_server"
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        ROOT / "server" / "README.md",
        *ROOT.glob("bench/*.md"),
        ROOT / "deploy" / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *SOURCE.glob("api/guide/*.md"),
    ]
)

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is not in every build of PyYAML

_EXAMPLE = re.compile(r"<!-- runs(?:: (?P<outcome>[^>]+?))? -->\n```sh\n(?P<script>.*?)```\n", re.DOTALL)
_WEBHOOKS = re.compile(r"^( *)# For webhooks.*\n((?:\1# .*\n)+)", re.MULTILINE)
_STEP = re.compile(r"<!-- install(?P<packages>: packages)? -->\n```sh\n(?P<script>.*?)```\n", re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def read_yaml(path: Path) -> Any:
    """What a YAML file contains."""
    return parse_yaml(path.read_text("utf-8"))


def parse_yaml(text: str | bytes) -> Any:
    """What a text in YAML says: with the loader in C, which takes a tenth of the time."""
    return yaml.load(text, _LOADER)


def kubernetes_manifests(*, webhooks: bool = False) -> list[dict[str, Any]]:
    """All documents of `deploy/kubernetes`; with what is a comment there unless there are webhooks."""
    files = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    texts = [file.read_text("utf-8") for file in files]
    if webhooks:
        texts = [_WEBHOOKS.sub(lambda part: part[2].replace(f"{part[1]}# ", part[1]), text) for text in texts]
    return [document for text in texts for document in yaml.load_all(text, _LOADER)]


class Example(NamedTuple):
    """A block to run; `statuses` are the expected statuses of the HTTP responses in its output."""

    script: str
    statuses: list[str]
    serves: bool


class Link(NamedTuple):
    """A link from a document to another, or to a heading."""

    target: Path
    heading: str


class InstallPage(NamedTuple):
    """Scripts of sh: what installs Debian's packages, and the steps after it, in order."""

    packages: str
    steps: list[str]


def name(document: Path) -> str:
    """A document's path in the repository."""
    return str(document.relative_to(ROOT))


def examples(document: Path) -> list[Example]:
    """The blocks to run, in the order of the document."""
    found = []
    for match in _EXAMPLE.finditer(document.read_text()):
        outcome = match["outcome"] or ""
        found.append(Example(match["script"], re.findall(r"\d{3}", outcome), outcome == "serves"))
    return found


def run_script(script: str, environ: Mapping[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run an example in a folder. It must succeed."""
    done = subprocess.run(
        ["sh", "-eu", "-c", script], env=environ, cwd=folder, capture_output=True, text=True, timeout=4 * PATIENCE
    )
    assert 0 == done.returncode, f"{script}\n{done.stdout}\n{done.stderr}"
    return done


def prose(document: Path) -> str:
    """The text without its fenced blocks."""
    return _FENCED.sub("", document.read_text())


def links(document: Path) -> list[Link]:
    """The links within the repository."""
    found = []
    for target in _LINK.findall(prose(document)):
        if "://" not in target:
            path, _, heading = target.partition("#")
            found.append(Link((document.parent / path).resolve() if path else document, heading))
    return found


def headings(document: Path) -> list[str]:
    """The anchors of the document's headings, as used in links."""
    lines = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines]


def block(document: Path, mark: str, language: str = "text") -> str:
    """The fenced block after the comment `<!-- mark -->`."""
    return document.read_text().partition(f"<!-- {mark} -->\n```{language}\n")[2].partition("```")[0]


def table(document: Path, mark: str) -> list[list[str]]:
    """The rows of the table after the comment `<!-- mark -->`, without its header and without backticks."""
    lines = document.read_text().partition(f"<!-- {mark} -->\n")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines[2:]]


def install_page() -> InstallPage:
    """Read the page; every block of its commands must be a step."""
    text = (ROOT / "docs" / "install.md").read_text()
    found = list(_STEP.finditer(text))
    assert len(found) == len(re.findall(r"^```sh$", text, re.MULTILINE))
    assert found[0]["packages"]
    return InstallPage(found[0]["script"], [step["script"] for step in found[1:]])


def texts(module: Path) -> Iterator[str]:
    """The texts in a module, without its docstrings, with `x` for each value that is put into one."""
    tree = ast.parse(module.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
