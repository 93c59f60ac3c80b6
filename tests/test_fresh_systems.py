"""The README's commands in a new Debian, which has what the README names and no more: no compiler, and no root.

pip gets the wheels of the lock files from a directory.
"""

import os
import re

import pytest

from testing.debian import debian
from testing.documents import ROOT, examples

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

_NAMED = ("make", "python3-venv", "curl")  # curl sends the README's requests

_SERVE = r"""
if command -v cc; then exit 1; fi
cd petstore
set -m
make run >shown &
until grep -q 'Health and metrics' shown; do jobs %1 | grep -q Running; sleep 0.2; done
export KEY=$(grep -m 1 -o 'pso_live_[A-Za-z0-9]*' shown)
"""
_STOP = """
kill -INT %1
wait %1 || true
if curl --silent http://127.0.0.1:8081/readyz; then exit 1; fi
.venv/bin/python tests/smoke.py .venv/bin/petstore
"""


@pytest.mark.parametrize("suite", ["bookworm", "trixie", "forky"])
def test_the_service_runs_in_a_new_debian(suite: str) -> None:
    requests = examples(ROOT / "README.md")[0]
    with debian(suite, *_NAMED) as root:
        root.add_checkout("/home/user/petstore")
        root.add_wheels("run.lock")
        shown = root.run(_SERVE + requests.script + _STOP, user="user")
    assert requests.statuses == re.findall(r"HTTP/1.1 (\d+)", shown)
    assert shown.endswith("10 passed, 0 failed\n")


def test_the_tests_pass_in_a_new_debian_on_its_own_engines() -> None:
    """Elsewhere the tests use the PostgreSQL and the Valkey that pip installs. In CI, only these are of Python 3.13."""
    engines = "POSTGRES_BIN=/usr/lib/postgresql/17/bin REDIS_SERVER=/usr/bin/redis-server"
    options = f"PYTEST_ADDOPTS='{os.environ.get('PYTEST_ADDOPTS', '')}'"
    with debian("trixie", *_NAMED, "postgresql-17", "redis-server") as root:
        root.add_checkout("/home/user/petstore")
        root.add_wheels("dev.lock")
        shown = root.run(f"redis-server --version; cd petstore; {engines} {options} make test", user="user")
    assert " v=8." in shown
    assert re.search(r"\d{4} passed", shown), shown[-2000:]
