"""Commands run inside the test's process: quick, with stdout, stderr and the exit code apart."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from petstore_server.cli.main import petstore


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        """The JSON Lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    def error(self) -> Any:
        """The one JSON object on stderr."""
        return json.loads(self.err)


class CommandLine:
    """Runs commands on one store."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, **settings: str) -> Done:
        own: dict[str, str | None] = {name: None for name in os.environ if name.startswith("PETSTORE_")}
        given = {"PETSTORE_DATABASE_URL": f"sqlite:///{self.store}", **settings}
        result = CliRunner().invoke(petstore, arguments, input=stdin, env={**own, **given})
        return Done(result.exit_code, result.stdout, result.stderr)

    def must(self, *arguments: str, stdin: str | bytes | None = None, **settings: str) -> Done:
        """Run a command that has to succeed."""
        done = self(*arguments, stdin=stdin, **settings)
        assert 0 == done.code, done.err
        return done
