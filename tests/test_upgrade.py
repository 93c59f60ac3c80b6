"""The procedure of docs/operating.md: two hosts are upgraded from the last release, go back, and forth, under load."""

import json
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

from testing.documents import ROOT
from testing.engines import running_engine
from testing.load import NOTHING_FAILED, ORDERS, SCOPES, Load
from testing.nginx_front import front, rendered_for
from testing.process import UNLIMITED, Server, environment, wait_until_serving
from testing.redis_engine import own_redis
from testing.subprocesses import free_port, kill

pytestmark = pytest.mark.system

_FIRST_RELEASE = "221d8ec3"  # 1.0.0
_PIP = "/opt/petstore/bin/pip"
_BACKUP = "petstore db backup before-upgrade.db --keep 5\n"
_BACKUP_OF_POSTGRESQL = """
pg_dump --format=custom --schema=petstore --file=before-upgrade.dump "$PETSTORE_DATABASE_URL"
petstore db backup before-upgrade.dump --made
"""


class Release(NamedTuple):
    """The files that a host is upgraded with, and the commit that they name."""

    folder: Path
    commit: str


@pytest.fixture(name="releases", scope="module")
def _releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release]:
    """The previous version, and the files as they are now.

    Without the history, both are the files as they are now: the procedure is the same.
    """
    older, sources = _previous(), tmp_path_factory.mktemp("sources")
    command = ["git", "archive", older or "HEAD", "server", "requirements"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "x"], cwd=sources, input=archive.stdout, check=True)
    folders = tmp_path_factory.mktemp("older"), tmp_path_factory.mktemp("newer")
    return _release(sources, folders[0], older or 40 * "0"), _release(ROOT, folders[1], _git("rev-parse", "HEAD"))


def _previous() -> str:
    """The commit of the version before this one; without tags the first one. Empty if the history is missing."""
    tag = _git("describe", "--tags", "--abbrev=0", "--match=v*", f"--exclude=v{version('petstore-server')}")
    return _git("rev-parse", "--verify", "--quiet", f"{tag or _FIRST_RELEASE}^{{commit}}")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _release(sources: Path, folder: Path, commit: str) -> Release:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    environ = {**os.environ, "SOURCE_COMMIT": commit}
    subprocess.run(command, cwd=sources / "server", env=environ, capture_output=True, check=True)
    (folder / "petstore-server.lock").write_bytes((sources / "requirements" / "scale-out.lock").read_bytes())
    return Release(folder, commit)


class Host:
    """A host with its own installation, which the third-party packages of this one complete."""

    def __init__(self, folder: Path, settings: dict[str, str], stack: ExitStack) -> None:
        self.port, self._admin_port, self._folder, self._stack = free_port(), free_port(), folder, stack
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        [packages] = folder.glob("lib/python*/site-packages")
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        more = {"PETSTORE_PORT": str(self.port), "PETSTORE_ADMIN_PORT": str(self._admin_port)}
        more |= {"PIP_QUIET": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self._environ = environment(folder / "store.db", PATH=path, **more, **settings)

    def install(self, release: Release) -> None:
        """Install a release, with which `run` and `serve` work from then on."""
        self.run(f"{_PIP} install --require-hashes -r petstore-server.lock", release)  # of what is not there already
        self.run(f"{_PIP} install --no-deps petstore_server-*.whl", release)

    def upgrade(self, release: Release, procedure: str) -> None:
        """Run the commands of the page, with the paths and ports of this host."""
        before, found, after = procedure.partition("systemctl restart petstore\n")
        assert found
        self.run(before, release)
        assert 0 == self._server.stop()
        self.serve()
        self.run(after, release)
        assert f"(commit {release.commit[:12]})" in self.run("petstore --version", release)

    def run(self, script: str, release: Release) -> str:
        """Run commands in the directory of the release, and return what they print."""
        script = script.replace(_PIP, f"{self._folder}/bin/python -m pip --no-input")
        script = script.replace("127.0.0.1:8081", f"127.0.0.1:{self._admin_port}")
        command = ["sh", "-eux", "-c", script]
        done = subprocess.run(
            command, cwd=release.folder, env=self._environ, capture_output=True, text=True, check=False
        )
        print(done.stderr + done.stdout)  # the log of the upgrade, with `pytest -rP`
        assert 0 == done.returncode
        return done.stdout

    def serve(self) -> None:
        """Start the server, and wait until it serves."""
        log = self._folder / "log"
        log.write_text("")
        command = [str(self._folder / "bin" / "petstore"), "serve"]
        with log.open("ab") as file:
            process = subprocess.Popen(command, env=self._environ, stderr=file)
        self._stack.callback(kill, process)
        reported = wait_until_serving(process, log)
        self._server = Server(process, reported["api"], reported["admin"], log)


@pytest.fixture(name="procedure")
def _procedure() -> str:
    page = (ROOT / "docs" / "operating.md").read_text()
    return page.partition("<!-- upgrade -->\n```sh\n")[2].partition("```")[0]


@pytest.fixture(name="settings", params=["sqlite", "postgres"])
def _settings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    with own_redis() as redis, ExitStack() as stack:
        settings = {"PETSTORE_REDIS_URL": redis.url, "PETSTORE_TRUSTED_PROXIES": "127.0.0.1"}
        settings["PETSTORE_DATABASE_URL"] = f"sqlite:///{tmp_path / 'store.db'}"
        if request.param == "postgres":
            engine = stack.enter_context(running_engine(settings={"fsync": "on", "full_page_writes": "on"}))
            settings["PETSTORE_DATABASE_URL"] = engine.url(engine.new_database())
            monkeypatch.setenv("PATH", f"{Path(engine.program('pg_dump')).parent}:{os.environ['PATH']}")
        yield settings


def test_no_request_fails_while_two_hosts_are_upgraded_and_go_back_and_forth(
    tmp_path: Path, releases: tuple[Release, Release], procedure: str, settings: dict[str, str]
) -> None:
    older, newer = releases
    if not settings["PETSTORE_DATABASE_URL"].startswith("sqlite"):
        assert _BACKUP in procedure
        procedure = procedure.replace(_BACKUP, _BACKUP_OF_POSTGRESQL)
    (tmp_path / "orders.jsonl").write_text("".join(f'{{"id":{number}}}\n' for number in range(1, ORDERS + 1)))
    with ExitStack() as stack:
        hosts = [Host(tmp_path / name, settings, stack) for name in ("one", "two")]
        for host in hosts:
            host.install(older)
        made = hosts[0].run(
            f"""petstore db migrate
            petstore orders import {tmp_path}/orders.jsonl
            petstore accounts create acme {" ".join(UNLIMITED)}
            petstore keys create acme {" ".join(SCOPES)}""",
            older,
        )
        for host in hosts:
            host.serve()
        ports = [host.port for host in hosts]
        before = stack.enter_context(front(tmp_path / "nginx", ports[0], rendered_for(*ports)))
        with Load(before, made.split()[-1]) as load:
            for release in (newer, older, newer):
                for host in hosts:
                    load.wait_for(60)
                    host.upgrade(release, procedure)
            load.wait_for(60)
        assert NOTHING_FAILED == set(load.outcomes), load.outcomes
        # The last process of the previous release has ended: what it placed gets its owner, which is not known there.
        hosts[0].run(f"petstore db migrate; petstore orders export {tmp_path}/exported.jsonl", newer)
    with (tmp_path / "exported.jsonl").open() as lines:
        exported = Counter((order["status"], order.get("account")) for order in map(json.loads, lines))
    assert ORDERS == sum(number for (_, account), number in exported.items() if account is None)
    assert load.outcomes["POST", 201] == exported["pending", "acme"]
    assert load.outcomes["DELETE", 204] == exported["cancelled", None]
