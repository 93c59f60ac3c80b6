"""The shipped configuration of Prometheus, its alerts and their tests, in promtool."""

import subprocess
from pathlib import Path

import pytest

from testing import needs

pytestmark = pytest.mark.system

SHIPPED = Path(__file__).parents[1] / "deploy" / "prometheus"


def promtool(*arguments: str) -> None:
    """Run promtool next to the shipped files. It must succeed."""
    done = subprocess.run(
        [needs.program("promtool", "prometheus"), *arguments], cwd=SHIPPED, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def test_promtool_accepts_the_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*_test.yml")), ids=lambda file: file.stem)
def test_the_alerts_pass_their_tests(file: Path) -> None:
    promtool("test", "rules", file.name)
