"""The Pet Store Orders service: list all orders, cancel an order; keys with plans, limits and bans."""

from functools import cache
from pathlib import Path

__version__ = "1.1.0"

_COMMIT_LENGTH = 12


@cache
def commit() -> str:
    """The commit of which this is a build, or that is checked out; "unknown" where nothing tells."""
    package = Path(__file__).parent
    built = package / "commit.txt"  # see hatch_build.py
    git = package.parents[2] / ".git"
    try:
        text = built.read_text() if built.exists() else _checked_out(git)
    except (OSError, StopIteration):  # there is no checkout, or another kind of one
        return "unknown"
    return text[:_COMMIT_LENGTH].strip()


def _checked_out(git: Path) -> str:
    """The commit that HEAD names. Raises OSError, StopIteration."""
    head = (git / "HEAD").read_text()
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ").strip()
    if (git / name).exists():
        return (git / name).read_text()
    return next(line for line in (git / "packed-refs").read_text().splitlines() if line.endswith(f" {name}"))
