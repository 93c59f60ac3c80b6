"""Takes the pictures of the console in the documentation: `python -m testing.console_screenshots docs/img`."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from testing.browser import chromium, served_demo

DOCUMENTED = (
    ("overview", "", 815, ""),
    ("limits", "", 800, ".column"),
    ("ban", "accounts/Paws%20Express", 560, ""),
    ("order", "orders/7", 1290, ""),
)
"""The name of a picture, its page, the height of the window, and the element that it shows if not all.

They show the console as it is on a desktop with light colours."""


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary, served_demo(Path(temporary) / "log") as demo, chromium() as browser:
        page = browser.new_page()
        page.goto(demo.link)
        page.wait_for_timeout(3000)  # the checks of the overview
        for name, path, height, selector in DOCUMENTED:
            page.set_viewport_size({"width": 1120, "height": height})
            page.goto(demo.console + path)
            shown = page.locator(selector).first if selector else page
            shown.screenshot(path=directory / f"console-{name}.png")


if __name__ == "__main__":
    main()
