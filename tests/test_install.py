"""`docs/install.md`: its commands, all of them and in order, in a new Debian 12 in a directory of its own.

debootstrap makes the Debian. What a directory does not have is replaced: no systemd runs, so a script starts what the
units start; and an authority of the test signs the certificate that certbot would get.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.documents import ROOT

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

_STEP = re.compile(r"<!-- install(?P<packages>: packages)? -->\n```sh\n(?P<script>.*?)```\n", re.DOTALL)
_SOURCE = "usr/local/src/petstore"
_MADE = ("opt/petstore", "var/lib/petstore", "etc/petstore", "usr/local/bin/petstore", "etc/nginx/conf.d/petstore.conf")

_SYSTEMCTL = r"""#!/bin/sh
# Enables units as systemd does, and starts what they start.
verb=$1; shift
[ "${1:-}" = --now ] && shift
case $verb in enable|disable) SYSTEMD_OFFLINE=1 /usr/bin/systemctl "$verb" "$@" || exit ;; esac
value() { sed -n "s/^$1=//p" "/etc/systemd/system/$unit.service" | head -n 1; }
run() {
    for directory in $(value StateDirectory); do install -d -m 750 -o petstore -g petstore "/var/lib/$directory"; done
    set -a; . "$(value EnvironmentFile)"; set +a
    cd "$(value WorkingDirectory)"
    exec setpriv --reuid petstore --regid petstore --init-groups $(value ExecStart)
}
stop() { [ ! -e /run/petstore.pid ] || { kill "$(cat /run/petstore.pid)"; wait_for_end; rm /run/petstore.pid; }; }
wait_for_end() { while kill -0 "$(cat /run/petstore.pid)" 2>/dev/null; do sleep 0.1; done; }
for unit; do
    case $verb:$unit in
        enable:petstore|restart:petstore) stop; (run) >>/var/log/petstore.log 2>&1 & echo $! >/run/petstore.pid ;;
        disable:petstore) stop ;;
        start:petstore-backup) (run) || exit ;;
        reload:nginx) nginx -s reload 2>/dev/null || nginx ;;
    esac
done
"""

_CERTBOT = r"""#!/bin/sh
# Signs the certificate that it is asked for with an authority of its own, which this Debian trusts.
set -eu
live=/etc/letsencrypt/live/api.example.com
[ "$1" = certonly ] || { rm -rf "$live"; exit; }
case " $* " in *" --standalone "*" -m orders@example.com -d api.example.com "*) ;; *) exit 1 ;; esac
! grep -q ' 00000000:0050 .* 0A ' /proc/net/tcp || { echo "port 80 is in use" >&2; exit 1; }
mkdir -p "$live"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=api.example.com -addext subjectAltName=DNS:api.example.com \
    -keyout "$live/privkey.pem" -out "$live/fullchain.pem" 2>/dev/null
cp "$live/fullchain.pem" /usr/local/share/ca-certificates/test.crt
update-ca-certificates >/dev/null 2>&1
"""


def test_every_command_of_the_page_runs_in_a_new_debian(tmp_path: Path) -> None:
    _require_root_and_debootstrap()
    steps = list(_STEP.finditer((ROOT / "docs" / "install.md").read_text()))
    assert len(steps) == len(re.findall(r"^```sh$", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE))
    debian = tmp_path / "debian"
    try:
        _make_debian(debian)
        packages, rest = steps[0], steps[1:]
        assert packages["packages"]
        _in(debian, packages["script"])
        _add_what_a_directory_lacks(debian)
        before_the_end = "".join(step["script"] for step in rest[:-1])
        check = f"ls -d {' '.join(f'/{made}' for made in _MADE)}\n! curl --silent http://api.example.com/\n"
        shown = _in(debian, before_the_end + check + rest[-1]["script"], "unshare", "--net", "--pid", "--fork")
        assert "HTTP/2 200" in shown
        assert '[{"id":' in shown
        assert re.search(r"\borders-\d{8}T\d{6}Z\.db\b", shown), shown[-8000:]
        assert [] == [made for made in _MADE if (debian / made).exists()]
    finally:
        shutil.rmtree(debian, ignore_errors=True)


def _require_root_and_debootstrap() -> None:
    if os.geteuid() != 0:
        pytest.skip("this needs root: it makes a Debian")
    if shutil.which("debootstrap") is None:
        assert os.environ.get("CI") != "true", "debootstrap is missing"
        pytest.skip("debootstrap is missing")


def _make_debian(debian: Path) -> None:
    """A Debian with the checkout, the wheels of the lock file, and no services that start when they are installed."""
    _run("debootstrap", "--variant=minbase", "--include=ca-certificates,systemd", "bookworm", str(debian))
    (debian / _SOURCE).mkdir(parents=True)
    listed = _run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (debian / _SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, debian / _SOURCE / name)
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--python-version", "3.11", "--only-binary", ":all:")
    _run(*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "run.lock"), "-d", str(debian / "wheels"))
    _script(debian / "usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
    shutil.copy("/etc/resolv.conf", debian / "etc/resolv.conf")
    for settings in Path("/etc/apt/apt.conf.d").glob("99*"):
        shutil.copy(settings, debian / "etc/apt/apt.conf.d")


def _add_what_a_directory_lacks(debian: Path) -> None:
    _script(debian / "usr/local/sbin/systemctl", _SYSTEMCTL)
    _script(debian / "usr/local/sbin/certbot", _CERTBOT)
    with (debian / "etc/hosts").open("a") as hosts:
        hosts.write("127.0.0.1 localhost api.example.com\n")


def _script(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def _in(debian: Path, script: str, *prefix: str) -> str:
    """Run a script in the Debian as root, with the environment of a login there; return what it shows."""
    environ = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/wheels",
    }
    mounts = (
        'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && ip link set lo up; exec chroot "$0" sh -eux'
    )
    isolated = ("unshare", "--mount", "--propagation", "private", "--kill-child", *prefix[1:])
    done = subprocess.run(
        [*isolated, "--", "sh", "-c", mounts, str(debian)],
        input=script,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}\n{_log(debian)}"
    return done.stdout


def _log(debian: Path) -> str:
    log = debian / "var/log/petstore.log"
    return log.read_text()[-2000:] if log.exists() else ""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
