"""`docs/install.md`: its commands, all of them and in order, in a new Debian 12 in a directory of its own.

debootstrap makes the Debian. What a directory does not have is replaced: no systemd runs, so a script starts what the
units start; and an authority of the test signs the certificate that certbot would get.
"""

import re

import pytest

from testing.debian import debian
from testing.documents import install_page

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

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


def test_every_command_of_the_page_runs_in_a_new_debian() -> None:
    page = install_page()
    with debian("bookworm", "ca-certificates", "systemd") as root:
        root.add_checkout("/usr/local/src/petstore", "root")
        root.run(page.packages, connected=True)
        root.add_wheels("run.lock")
        root.add_program("usr/local/sbin/systemctl", _SYSTEMCTL)
        root.add_program("usr/local/sbin/certbot", _CERTBOT)
        (root.path / "etc/hosts").write_text("127.0.0.1 localhost api.example.com\n")
        before_the_end = "".join(page.steps[:-1])
        made = " ".join(f"/{each}" for each in _MADE)
        check = f"ls -d {made}\nif curl --silent http://api.example.com/; then exit 1; fi\n"
        shown = root.run(before_the_end + check + page.steps[-1])
        assert "HTTP/2 200" in shown
        assert '[{"id":' in shown
        assert re.search(r"\borders-\d{8}T\d{6}Z\.db\b", shown), shown[-8000:]
        assert [] == [each for each in _MADE if (root.path / each).exists()]
