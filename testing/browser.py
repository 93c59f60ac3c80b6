"""A served demo, and Chromium: for the tests of the documentation page and of the console, and for screenshots."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from testing import needs
from testing.process import begin_demo
from testing.subprocesses import PATIENCE, demo_output

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    "--font-render-hinting=none",
]


class ServedDemo(NamedTuple):
    """A running `petstore serve --demo`: the addresses of its ports, and what it printed.

    That is a key, a link that signs in to the console, and the id of an order that can be cancelled.
    """

    api: str
    admin: str
    key: str
    link: str
    pending: str

    @property
    def console(self) -> str:
        """The address of the console's first page."""
        return f"{self.admin}/console/"


class Visit:
    """A page in a browser, and all that the browser asked for and complained of.

    Its requests are expected to have addresses that begin with `home`.
    """

    def __init__(self, page: "Page", demo: ServedDemo, home: str) -> None:
        self.page = page
        self.demo = demo
        self.requested: list[str] = []
        self.complaints: list[str] = []
        self._home = home
        page.set_default_timeout(PATIENCE * 1000)
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self._note(message.type, message.text))

    def shows(self, where: "Locator", text: str) -> None:
        """Wait until this part of the page contains the text."""
        from playwright.sync_api import expect

        expect(where).to_contain_text(text)

    def _note(self, kind: str, text: str) -> None:
        # Chromium logs every response of 400 and above; those are asked for here.
        if kind in ("warning", "error") and "the server responded with a status of" not in text:
            self.complaints.append(text)

    def requests_elsewhere(self) -> list[str]:
        return [url for url in self.requested if not url.startswith((self._home, "data:"))]


@contextmanager
def served_demo(log: Path, **settings: str) -> Iterator[ServedDemo]:
    """Serve sample data on free ports, with these settings; `log` gets the server's log."""
    with log.open("w") as stderr:
        process = begin_demo(log.parent, stderr=stderr, **settings)
        try:
            yield _read(process)
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert 0 == process.returncode


def _read(process: "subprocess.Popen[str]") -> ServedDemo:
    text = "".join(demo_output(process))
    patterns = (
        r"(http://\S+)/docs",
        r"(http://\S+)/readyz",
        r"(pso_live_\w+)",
        r"(http://\S+/console/sign-in\?token=\S+)",
        r"-X DELETE .*/v1/store/orders/(\d+)",
    )
    found = [match[1] for pattern in patterns if (match := re.search(pattern, text))]
    if len(found) < len(patterns):
        pytest.fail(f"the demo did not say how to use it: {text!r}")
    return ServedDemo(*found)


@contextmanager
def chromium() -> Iterator["Browser"]:
    """The system's Chromium."""
    path = needs.program("chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
