"""A served demo with its console, and Chromium: for the browser tests of the console and for its screenshots."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PETSTORE = Path(sys.executable).parent / "petstore"
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    "--font-render-hinting=none",
]


class ServedDemo(NamedTuple):
    """A running `petstore serve --demo`: the addresses of its ports, the key it printed, and a link that signs in."""

    api: str
    admin: str
    key: str
    link: str

    @property
    def console(self) -> str:
        """The address of the console's first page."""
        return f"{self.admin}/console/"


@contextmanager
def served_demo(log: Path) -> Iterator[ServedDemo]:
    """Serve sample data on free ports; `log` gets the server's log."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PETSTORE_")}
    command = [str(PETSTORE), "serve", "--demo", "--port", "0", "--admin-port", "0"]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            yield _read(process)
        finally:
            process.terminate()
            process.communicate(timeout=30)


def _read(process: "subprocess.Popen[str]") -> ServedDemo:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if "Ctrl-C" in line:
            break
    found = [re.search(pattern, text) for pattern in (r"(http://\S+)/docs", r"(http://\S+)/readyz", r"(pso_live_\w+)")]
    link = re.search(r"(http://\S+/console/sign-in\?token=\S+)", text)
    if link is None or None in found:
        pytest.fail(f"the demo did not say how to use it: {text!r}")
    api, admin, key = (match[1] for match in found if match is not None)
    return ServedDemo(api, admin, key, link[1])


@contextmanager
def chromium() -> Iterator["Browser"]:
    """The system's Chromium. Where there is none, skips the test, or fails it in CI."""
    path = shutil.which("chromium")
    if path is None:
        message = "Chromium is missing: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
