"""Commands run inside the test's process: quick, with stdout, stderr and the exit code apart."""

import json
import os
from pathlib import Path
from typing import IO, Any, NamedTuple

from click.testing import CliRunner

from petstore_server.cli.main import petstore
from testing.deployment import Deployment
from testing.stores import opened_file


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

    def fails(self, code: int, *texts: str) -> None:
        """Assert that the command ended with this exit code, wrote nothing to stdout, and each text to stderr."""
        assert (code, "") == (self.code, self.out), self.err
        for text in texts:
            assert text in self.err


class CommandLine:
    """Runs commands on one store, which is made for the first one if it is missing and `make` says so."""

    def __init__(self, store: Path | Deployment, *, make: bool = True) -> None:
        self._deployment = Deployment.over(store)
        self._make = make

    @property
    def store(self) -> Path:
        return self._deployment.store

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._deployment.settings({})["PETSTORE_DATABASE_URL"]

    def __call__(self, *arguments: str, stdin: str | bytes | IO[bytes] | None = None, **settings: str) -> Done:
        own: dict[str, str | None] = {name: None for name in os.environ if name.startswith("PETSTORE_")}
        given = self._deployment.made(settings) if self._make else self._deployment.settings(settings)
        result = CliRunner().invoke(petstore, arguments, input=stdin, env={**own, **given})
        return Done(result.exit_code, result.stdout, result.stderr)

    def must(self, *arguments: str, stdin: str | bytes | None = None, **settings: str) -> Done:
        """Run a command that has to succeed."""
        done = self(*arguments, stdin=stdin, **settings)
        assert 0 == done.code, done.err
        return done

    def execute(self, sql: str, *parameters: str | float) -> None:
        """Execute statements on the file of the store, as no command would."""
        with opened_file(self.store) as file:
            file.execute(sql, parameters or None)
