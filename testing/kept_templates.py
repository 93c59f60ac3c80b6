"""The console's compiled templates, kept between test runs: compiling them takes 0.4 s of each test process."""

from pathlib import Path

from jinja2 import FileSystemBytecodeCache

from petstore_server.console.rendering import ENVIRONMENT

_FOLDER = Path(__file__).parents[1] / ".pytest_cache" / "templates"


def keep_templates() -> None:
    """Read templates as they were compiled, if they are as they were then; and keep those that are compiled."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    ENVIRONMENT.bytecode_cache = FileSystemBytecodeCache(str(_FOLDER))
