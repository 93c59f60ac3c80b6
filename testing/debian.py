"""Debian in a directory: made once by debootstrap, kept for later runs, and copied for each test.

    with debian("trixie", "make", "python3-venv") as root:
        root.add_checkout("/home/user/petstore")
        shown = root.run("cd petstore && make run", user="user")

Commands run as in a container: other processes end with the command, orphans are reaped, /dev/shm and the network are
its own. Needs root.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from testing import needs
from testing.documents import ROOT

_OLD = 60 * 86_400.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTER = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs -o mode=1777 shm "$0/dev/shm" || exit
[ "$1" = connected ] || ip link set lo up || exit
shift; chroot "$@"; exit
"""
_CONDITION = re.compile(r" ; python_full_version < '[0-9.]+'(?= \\\n)")
_ADD_USER = "useradd --create-home --shell /bin/bash user"


class Debian:
    """A Debian that the test may change: the directory `path`. It has the unprivileged user `user`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def command(self, *arguments: str, user: str = "root", connected: bool = False) -> list[str]:
        """The command, for `subprocess`, that runs another one in the Debian, with the environment of a login there.

        Unless it is `connected` to the network, it has one of its own, in which only 127.0.0.1 exists.
        """
        home = "/root" if user == "root" else f"/home/{user}"
        environ = {"PATH": _PATH, "HOME": home, "USER": user, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"} if (self.path / "wheels").exists() else {}
        environ |= {name: text for name, text in os.environ.items() if name.lower().endswith("_proxy")}
        isolated = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        isolated += [] if connected else ["--net"]
        network = "connected" if connected else "separate"
        enter = ["sh", "-c", _ENTER, str(self.path), network, f"--userspec={user}:{user}"]
        login = ["env", "-i", f"--chdir={home}", *(f"{name}={text}" for name, text in environ.items())]
        return [*isolated, "--", *enter, str(self.path), *login, *arguments]

    def run(self, script: str, *, user: str = "root", connected: bool = False) -> str:
        """Run a script of bash; return what it shows. AssertionError shows its end if it fails."""
        command = self.command("bash", "-euxc", script, user=user, connected=connected)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def add_program(self, path: str, script: str) -> None:
        """Write a script that anyone may run."""
        (self.path / path).write_text(script)
        (self.path / path).chmod(0o755)

    def add_checkout(self, folder: str, user: str = "user") -> None:
        """Copy the files of the checkout into the folder, for the user."""
        target = self.path / folder.lstrip("/")
        listed = _run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target / name)
        self.run(f"chown -R {user}: {folder}")

    def add_wheels(self, *locks: str) -> None:
        """Have pip install what the lock files list, for the Python of this Debian, without a network."""
        python = (self.path / "usr/bin/python3").readlink().name.removeprefix("python")
        shutil.copytree(kept_wheels(python, *locks), self.path / "wheels", copy_function=_link_or_copy)


@contextmanager
def debian(suite: str, *packages: str) -> Iterator[Debian]:
    """A new Debian with these packages and no more than they depend on; it is deleted at the end.

    No service starts when its package is installed.
    """
    needs.root()
    folder = Path(tempfile.mkdtemp(prefix="petstore-debian-", dir="/var/tmp"))  # large, so it is not in memory
    folder.chmod(0o755)
    try:
        _copy(_kept_debian(suite, *sorted(packages)), folder / "root")
        yield Debian(folder / "root")
    finally:
        _run("rm", "-rf", "--one-file-system", str(folder))


def kept_wheels(python: str, *locks: str) -> Path:
    """A directory with the wheels of pip and of lock files for a version of Python. Do not change it."""
    listed = [(ROOT / "requirements" / name).read_text() for name in ("pip.lock", *locks)]

    def download(target: Path) -> None:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--require-hashes")
        for text in listed:
            with tempfile.NamedTemporaryFile("w", suffix=".lock") as lock:
                lock.write(_CONDITION.sub("", text))  # pip would take the version of the Python that it runs on
                lock.flush()
                _run(*pip, "--no-deps", "--python-version", python, "-r", lock.name, "-d", str(target))

    return _kept(f"wheels-{python}-{sha256(''.join(listed).encode()).hexdigest()[:16]}", download)


def _kept_debian(suite: str, *packages: str) -> Path:
    """A Debian to copy, made this month."""
    month = time.strftime("%Y-%m", time.gmtime())
    if not packages:
        return _kept(f"{suite}-{month}", lambda target: _bootstrap(suite, target))
    base = _kept_debian(suite)

    def install(target: Path) -> None:
        _copy(base, target)
        apt = f"apt-get install -qq --no-install-recommends {' '.join(packages)} >/var/log/installed 2>&1"
        Debian(target).run(f"apt-get update -qq\n{apt} || {{ tail -n 50 /var/log/installed; exit 1; }}", connected=True)
        Debian(target).run("apt-get clean")

    return _kept(f"{suite}-{month}-{sha256(' '.join(packages).encode()).hexdigest()[:16]}", install)


def _bootstrap(suite: str, target: Path) -> None:
    script = suite if Path("/usr/share/debootstrap/scripts", suite).exists() else "trixie"  # one is like another
    default_mirror = ""
    _run(needs.program("debootstrap"), "--variant=minbase", suite, str(target), default_mirror, script)
    Debian(target).add_program("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
    for settings in (Path("/etc/resolv.conf"), *Path("/etc/apt/apt.conf.d").glob("99*")):
        shutil.copy(settings, target / settings.relative_to("/"))
    (target / "etc/hosts").write_text("127.0.0.1 localhost\n")
    Debian(target).run(_ADD_USER)


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """A directory outside the checkout, made now unless an earlier run did. Its content never changes."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "petstore-tests"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be making the same
        if not kept.exists():
            _forget_old(folder)
            begun = folder / f"{name}.begun"
            _run("rm", "-rf", "--one-file-system", str(begun))
            begun.mkdir()
            make(begun)
            begun.rename(kept)
    return kept


def _forget_old(folder: Path) -> None:
    """Delete what was made more than two months ago: no run uses it any more."""
    for old in folder.iterdir():
        if old.stat().st_ctime < time.time() - _OLD:
            _run("rm", "-rf", "--one-file-system", str(old))


def _copy(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    _run("cp", "-a", "--reflink=auto", f"{source}/.", str(target))


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
