"""Takes screenshots of the console with sample data: `python -m testing.console_screenshots DIRECTORY [--all]`.

Without `--all`, only the pictures of the documentation: `python -m testing.console_screenshots docs/img`.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from testing.browser import ServedDemo, chromium, served_demo

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIZES = {
    "390": {"width": 390, "height": 844},
    "768": {"width": 768, "height": 1024},
    "1024": {"width": 1024, "height": 768},
    "1440": {"width": 1440, "height": 900},
}
PAGES = {
    "overview": "",
    "accounts": "accounts?sort=-share",
    "account": "accounts/Acme%20Pet%20Supplies",
    "banned": "accounts/Paws%20Express",
    "demo": "accounts/demo",
    "orders": "orders",
    "order": "orders/7",
    "audit": "audit",
    "bans": "bans",
    "import": "imports/new",
    "missing": "orders/99",
    "wrong": "orders?petId=cat&shipDateFrom=soon",
    "suspend": "accounts/demo/suspend",
}
DOCUMENTED = (
    ("overview", "", 815, ""),
    ("limits", "", 800, ".column"),
    ("ban", PAGES["banned"], 560, ""),
    ("order", PAGES["order"], 620, ""),
)
"""The name of a picture, its page, the height of the window, and the element that it shows if not all."""

FILE = "id,petId,quantity,shipDate\n7,7,5,2026-12-01T10:00:00Z\n41,1,2,\n4,1,1,\n42,two,1,\n43,1,1,soon\n"


def upload(page: "Page", demo: ServedDemo) -> None:
    """Upload a file of which some rows are rejected, and wait until it was checked."""
    page.goto(f"{demo.console}imports/new")
    page.set_input_files("#file", {"name": "november.csv", "mimeType": "text/csv", "buffer": FILE.encode()})
    page.get_by_role("button", name="Check the file").click()
    page.get_by_role("button", name="Import", exact=True).wait_for()


def take_all(page: "Page", demo: ServedDemo, directory: Path) -> None:
    """Every page in all sizes and both colour schemes."""
    upload(page, demo)
    checked = page.url.removeprefix(demo.console)
    page.goto(demo.console + PAGES["banned"])
    key = page.locator("tr th .id").first.inner_text()
    pages = {**PAGES, "checked": checked, "key": f"keys/{key}", "rotate": f"keys/{key}/rotate"}
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for name, path in pages.items():
                page.goto(demo.console + path)
                page.screenshot(path=directory / f"{name}-{size}-{scheme}.png", full_page=True)


def take_for_documentation(page: "Page", demo: ServedDemo, directory: Path) -> None:
    """The pictures of the operator's guide and the README, as they are on a desktop with light colours."""
    for name, path, height, selector in DOCUMENTED:
        page.set_viewport_size({"width": 1120, "height": height})
        page.goto(demo.console + path)
        shown = page.locator(selector).first if selector else page
        shown.screenshot(path=directory / f"console-{name}.png")


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary, served_demo(Path(temporary) / "log") as demo, chromium() as browser:
        page = browser.new_page(viewport=SIZES["1440"])  # type: ignore[arg-type]
        page.goto(demo.link)
        page.wait_for_timeout(3000)  # the checks of the overview
        take = take_all if "--all" in sys.argv else take_for_documentation
        take(page, demo, directory)


if __name__ == "__main__":
    main()
