"""What tests need of the system: without it a test is skipped on a developer's machine, and fails under CI."""

import os
import shutil
from importlib.util import find_spec
from typing import NoReturn

import pytest


def program(name: str, package: str | None = None) -> str:
    """The path of a program that Debian has in `package`, by default the one of its name."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return found or missing(f"{name} is missing: apt-get install {package or name}")


def module(name: str) -> None:
    """Require a Python module that only system tests use."""
    if find_spec(name) is None:
        missing(f"the module {name} is missing: make test-system installs it")


def root() -> None:
    """Require that the test runs as root."""
    if os.geteuid() != 0:
        missing("this needs root")


def missing(message: str) -> NoReturn:
    """End the test because of what is missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
