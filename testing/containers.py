"""Containers that share nothing with the machine's: images, volumes and networks are in a directory of their own.

No registry is needed: base images are Debians under the names of the public images. Needs root.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testing import needs
from testing.debian import Debian, debian, kept_wheels
from testing.documents import ROOT

_ENGINE = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
static_dir = "{folder}/static"
tmp_dir = "{folder}/state"
volume_path = "{folder}/volumes"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""
_PIP = "[global]\nno-index = true\nfind-links = /wheels\n"


_POSTGRES = """#!/bin/sh
set -eu
if [ ! -e "$PGDATA" ]; then
    install -d -o postgres -m 700 "$(dirname "$PGDATA")"
    (umask 077; printf %s "$POSTGRES_PASSWORD" >/tmp/password; chown postgres /tmp/password)
    as_server() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
    as_server initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-host=scram-sha-256 --auth-local=trust
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    as_server pg_ctl start --wait -o "-c listen_addresses="
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    as_server pg_ctl stop
fi
exec setpriv --reuid postgres --regid postgres --init-groups postgres -c "listen_addresses=*"
"""
_REDIS = """#!/bin/sh
exec setpriv --reuid redis --regid redis --init-groups "$@" --protected-mode no
"""
_ENTRYPOINT = 'ENTRYPOINT ["/entrypoint"]'
_OFFLINE = "--pull=never -v {folder}/pip.conf:/etc/pip.conf:ro -v {wheels}:/wheels:ro"


class Containers:
    """podman, and what works on it, in a directory. Health checks run only when a test runs them."""

    def __init__(self, folder: Path) -> None:
        for name, text in {"containers.conf": _ENGINE, "storage.conf": _STORAGE, "pip.conf": _PIP}.items():
            (folder / name).write_text(text.format(folder=folder))
        (folder / "tmp").mkdir()
        wheels = kept_wheels("3.13", "scale-out.lock")
        self.offline = _OFFLINE.format(folder=folder, wheels=wheels)
        """Options of a build: base images and wheels come from this machine. Only apt uses the network."""
        self._environ = os.environ | {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
            "DISABLE_HC_SYSTEMD": "true",
            "TMPDIR": str(folder / "tmp"),
        }

    def run(self, command: str, **environ: str) -> str:
        """Run a command line of bash in the checkout; return what it shows. AssertionError shows why it failed."""
        shell = ["bash", "-euo", "pipefail", "-c", command]
        done = subprocess.run(
            shell, env=self._environ | environ, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert 0 == done.returncode, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def add_image(self, name: str, root: Path, *changes: str) -> None:
        """Make an image of what a directory holds; each change is an instruction of a Containerfile."""
        options = " ".join(f"--change {shlex.quote(change)}" for change in changes)
        self.run(f"tar -C {root} --one-file-system -c . | podman import --quiet {options} - {name}")

    def add_engines(self) -> None:
        """Add images of PostgreSQL 18 and Redis 8 with as much of the interface of the public ones as is used here."""
        with debian("forky", "postgresql-18") as root:
            path = "ENV PATH=/usr/lib/postgresql/18/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            data = ("ENV PGDATA=/var/lib/postgresql/18/docker", "VOLUME /var/lib/postgresql")
            _add_entrypoint(root, _POSTGRES)
            self.add_image("docker.io/library/postgres:18", root.path, _ENTRYPOINT, path, *data, "STOPSIGNAL SIGINT")
        with debian("forky", "redis-server") as root:
            root.run("install -d -o redis -g redis /data")
            _add_entrypoint(root, _REDIS)
            self.add_image("docker.io/library/redis:8", root.path, _ENTRYPOINT, "WORKDIR /data", "VOLUME /data")


def _add_entrypoint(root: Debian, script: str) -> None:
    file = root.path / "entrypoint"
    file.write_text(script)
    file.chmod(0o755)


@contextmanager
def containers() -> Iterator[Containers]:
    """An engine without images; everything of it is deleted at the end."""
    needs.root()
    needs.program("podman")
    needs.program("runc")
    needs.program("iptables")
    for name in ("netavark", "aardvark-dns"):
        if not Path("/usr/lib/podman", name).exists():
            needs.missing(f"{name}, for the network of containers, is missing: apt-get install {name}")
    folder = Path(tempfile.mkdtemp(prefix="petstore-containers-", dir="/var/tmp"))  # large, so it is not in memory
    try:
        engine = Containers(folder)
        try:
            yield engine
        finally:
            engine.run("podman pod rm --all --force --time 0 && podman rm --all --force --time 0")
    finally:
        shutil.rmtree(folder)
