"""The operator console in a real browser: without scripts, on a phone, in dark mode; sample data and a busy store."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testing.browser import ServedDemo, Visit, served_demo
from testing.busy_store import LONG_NAME, ORDERS, fill_busy_store
from testing.process import Server, petstore_process, serving
from testing.webhook_messages import SETTINGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.system

DESKTOP = {"width": 1440, "height": 900}
LAPTOP = {"width": 1024, "height": 768}
TABLET = {"width": 768, "height": 1024}
PHONE = {"width": 390, "height": 844}
SMALLEST = {"width": 320, "height": 640}  # to which WCAG 2.2 requires that pages reflow
BANNED_KEY, WEBHOOKS = "accounts/Paws%20Express", "accounts/demo"
PAGES = (
    *("", "?period=week", "accounts", "accounts?using=getPet", "accounts?search=no-such-account", "sessions"),
    *("accounts/Acme%20Pet%20Supplies", BANNED_KEY, "accounts/Quiet%20Cat%20Cafe", WEBHOOKS, f"accounts/{LONG_NAME}"),
    *("accounts/demo/suspend", "bans", "orders", "orders/7", "orders/99", "orders?petId=99"),
    *("orders?petId=cat&shipDateFrom=soon&id=one", "audit", "audit?action=key.ban", "imports", "imports/new"),
)
_SMALL_TARGETS = """
    [...document.querySelectorAll("button, input:not([type=hidden]), select, summary, nav a, .actions a, th a")]
        .filter(each => each.checkVisibility())
        .filter(each => each.getBoundingClientRect().height < 23.9)
        .map(each => each.outerHTML.slice(0, 120))
"""
# Not in a part that scrolls by itself, nor hidden from view.
_TOO_WIDE = """
    [...document.querySelectorAll("body *")]
        .filter(each => each.checkVisibility() && !each.closest("pre, .scroll, .visually-hidden, .skip"))
        .filter(each => each.getBoundingClientRect().right > innerWidth + 0.5)
        .map(each => each.outerHTML.slice(0, 120))
"""
# What the keyboard reaches next to the left of, or above, what it reached before; columns are read one after the other.
_OUT_OF_ORDER = """
    () => {
        const focusable = "a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']";
        const reached = [...document.querySelectorAll(focusable)]
            .filter(each => each.checkVisibility() && !each.closest(".skip"));
        const column = each => each.closest(".columns > *");
        return reached.slice(1).filter((next, index) => {
            const [one, other] = [reached[index], next].map(each => each.getBoundingClientRect());
            const above = other.bottom <= one.top + 1;
            const sameLine = other.bottom > one.top + 1 && other.top < one.bottom - 1 && other.right <= one.left + 1;
            return column(reached[index]) === column(next) && (above || sameLine);
        }).map(each => each.outerHTML.slice(0, 120));
    }
"""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SHOP_FILE = "Bestellnr,Menge,Notiz\n2001,5,für Ada\n2002,zwei,\n"
FILE = "id,petId,quantity\n7,7,5\n4,1,1\n101,1,2\n102,two,1\n"


class ConsoleVisit(Visit):
    """A page of the console, for a signed-in operator."""

    def __init__(self, page: "Page", demo: ServedDemo) -> None:
        super().__init__(page, demo, demo.console)

    def open(self, path: str) -> None:
        self.page.goto(self.demo.console + path)

    def press(self, name: "str | re.Pattern[str]") -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def upload(self, name: str, content: str) -> None:
        file: Any = {"name": name, "mimeType": "text/csv", "buffer": content.encode()}
        self.page.set_input_files("#file", file)
        self.press("Upload")

    def width(self) -> int:
        """How many pixels wide the page is."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    def says(self, text: str) -> None:
        self.shows(self.page.locator("main"), text)


Visiting = Callable[..., AbstractContextManager[ConsoleVisit]]


@pytest.fixture(name="demo", scope="module")
def _demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDemo]:
    with served_demo(tmp_path_factory.mktemp("demo") / "log", **SETTINGS) as demo:
        yield demo


@pytest.fixture(name="session", scope="module")
def _session(chromium: "Browser", demo: ServedDemo) -> Any:
    """The cookies of an operator who opened the link that the demo printed."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(demo.link)
    assert f"{demo.console}" == page.url
    assert [True] == [
        cookie["httpOnly"] for cookie in context.cookies() if cookie["name"].startswith("petstore_session_")
    ]
    state = context.storage_state()
    page.goto(demo.link)
    assert "This link does not work any more" in page.inner_text("main")
    context.close()
    return state


@pytest.fixture(name="visiting")
def _visiting(chromium: "Browser", demo: ServedDemo, session: Any) -> Visiting:
    """Opens a browser with these options, in which the operator has signed in."""

    @contextmanager
    def visiting(**options: Any) -> Iterator[ConsoleVisit]:
        context = chromium.new_context(storage_state=session, **options)
        visit = ConsoleVisit(context.new_page(), demo)
        yield visit
        context.close()
        assert [] == visit.complaints
        assert [] == visit.requests_elsewhere()

    return visiting


@pytest.mark.parametrize("size", [DESKTOP, LAPTOP, TABLET, PHONE, SMALLEST], ids=lambda size: f"{size['width']}")
def test_every_page_is_accessible_and_fits(visiting: Visiting, size: dict[str, int]) -> None:
    with visiting(viewport=size, color_scheme="light") as visit:
        assert [] == _problems(visit, lambda: _inaccessible(visit) + _misplaced(visit, size["width"]))


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_is_accessible_in_dark_mode(visiting: Visiting, size: dict[str, int]) -> None:
    with visiting(viewport=size, color_scheme="dark") as visit:
        assert [] == _problems(visit, lambda: _inaccessible(visit))


def _problems(visit: ConsoleVisit, problems_here: Callable[[], list[str]]) -> list[str]:
    """What is wrong with all pages, and with one without a session."""

    def problems_of(path: str) -> list[str]:
        visit.open(path)
        return [f"{path}: {each}" for each in problems_here()]

    visit.open("imports/new")
    visit.upload("november.csv", FILE)
    visit.page.get_by_role("button", name="Import", exact=True).wait_for()
    checked = visit.page.url.removeprefix(visit.demo.console)
    visit.open(WEBHOOKS)
    visit.page.get_by_label("URL").fill("http://127.0.0.1:1/" + 25 * "hook")  # which does not fit a phone in one line
    visit.press("Create webhook")
    visit.page.get_by_role("link", name=re.compile("^Go to wh_")).click()
    webhook = visit.page.url.removeprefix(visit.demo.console)
    visit.open(BANNED_KEY)
    key = "keys/" + visit.page.locator("tr th .id").first.inner_text()
    visit.open("imports/new")
    visit.upload("shop.csv", SHOP_FILE)
    visit.page.get_by_role("heading", name="How the file is read").wait_for()
    to_choose = visit.page.url.removeprefix(visit.demo.console)
    more = webhook, f"{webhook}/rotate", f"{webhook}/delete", key, f"{key}/rotate", f"{key}/revoke", checked, to_choose
    problems = [problem for path in (*PAGES, *more) for problem in problems_of(path)]
    for upload in (checked, to_choose):  # there is room for a few only
        visit.open(upload)
        visit.press("Delete upload")
    visit.page.context.clear_cookies()
    return [*problems, *problems_of("accounts")]


def _inaccessible(visit: ConsoleVisit) -> list[str]:
    """What breaks the rules of accessibility on the page that is open."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(visit.page, options={"runOnly": RULES}).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found]


def _misplaced(visit: ConsoleVisit, width: int) -> list[str]:
    """What is too wide, too small or out of order on the page that is open, in a window of this width."""
    problems = [f"{needed} pixels wide"] if (needed := visit.width()) > width else []
    problems += [f"wider than the window: {each}" for each in visit.page.evaluate(_TOO_WIDE)]
    problems += [f"reached out of order: {each}" for each in visit.page.evaluate(_OUT_OF_ORDER)]
    return problems + [f"less than 24 pixels: {each}" for each in visit.page.evaluate(_SMALL_TARGETS)]


def test_the_columns_of_a_file_are_chosen_with_the_keyboard_on_a_phone_without_scripts(visiting: Visiting) -> None:
    with visiting(java_script_enabled=False, viewport=PHONE) as visit:
        page = visit.page
        visit.open("imports/new")
        visit.upload("shop.csv", SHOP_FILE)
        visit.says("choose below which column has the number of the order")
        for label, keys in (("Bestellnr", "Or"), ("Menge", "Qu")):
            page.get_by_label(label, exact=True).focus()
            page.keyboard.type(keys)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Check the file").focus()
        page.keyboard.press("Enter")
        visit.says("The first orders as they would be stored")
        assert ["2", "2001", "5", "pending"] == page.inner_text("tbody tr").split()
        assert PHONE["width"] >= visit.width()
        page.get_by_role("button", name="Import", exact=True).focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Imported", exact=True).wait_for()
        visit.open("orders/2001")
        visit.says("Quantity")


def test_the_console_is_used_with_the_keyboard_and_left(visiting: Visiting) -> None:
    with visiting(viewport=PHONE) as visit:
        visit.open("")
        visit.page.keyboard.press("Tab")
        assert "Skip to content" == visit.page.evaluate("document.activeElement.textContent")
        visit.page.keyboard.press("Enter")
        assert "content" == visit.page.evaluate("document.activeElement.id")
        visit.press("Sign out")
        visit.says("You are signed out")
        visit.open("accounts")
        visit.says("petstore console")


BUSY_WIDTHS = (1280, 768, 390, 320)
ACME = "accounts/acme"
BUSY_PAGES = (
    *("", "?period=week", "accounts", f"accounts/{LONG_NAME}", ACME, "bans", "orders", "orders/120"),
    *("imports", "imports/new", "audit", f"accounts/{LONG_NAME}/suspend", "orders?petId=cat"),
)


@pytest.fixture(name="store", scope="module")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("busy") / "store.db"
    fill_busy_store(file)
    return file


@pytest.fixture(name="server", scope="module")
def _server(store: Path) -> Iterator[Server]:
    with serving(store) as server:
        yield server


@pytest.fixture(name="page")
def _page(request: pytest.FixtureRequest, chromium: "Browser", store: Path, server: Server) -> Iterator["Page"]:
    """A page of a browser without scripts, for an operator who has signed in; addresses begin at the console's.

    A test may give the options of the browser as its parameter.
    """
    options: Any = getattr(request, "param", {"viewport": {"width": 1280, "height": 900}})
    context = chromium.new_context(java_script_enabled=False, base_url=f"{server.admin}/console/", **options)
    page = context.new_page()
    done = petstore_process(store, "console", "--as", "ada", "--url", server.admin)
    assert 0 == done.returncode, done.stderr
    page.goto(done.stdout.strip())
    yield page
    context.close()


def test_pages_fit_tables_become_rows_with_names_and_meters_are_next_to_their_text(page: "Page") -> None:
    problems = []
    for width in BUSY_WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        for path in BUSY_PAGES:
            page.goto(path)
            found = page.evaluate("document.documentElement.scrollWidth")
            if found > width:
                problems.append(f"{path} at {width}: {found} pixels")
        page.goto("orders")
        is_open = page.get_by_label("Pet id").is_visible()
        assert is_open is (width > 704), f"filters at {width}"
        name = page.evaluate("getComputedStyle(document.querySelector('td[data-name=Status]'), '::before').content")
        assert ('"Status"' if width <= 768 else "none") == name, f"names at {width}"
        page.goto("accounts")
        used = page.locator(".used:visible").first
        meter, text = used.locator("meter").bounding_box(), used.locator("span").bounding_box()
        assert meter is not None
        assert text is not None
        assert abs(meter["y"] + meter["height"] / 2 - text["y"] - text["height"] / 2) < 8, f"meters at {width}"
    assert [] == problems


@pytest.mark.parametrize("page", [{"viewport": {"width": 390, "height": 844}}], indirect=True)
def test_filters_that_are_set_do_not_push_the_list_off_a_phone(page: "Page") -> None:
    for path in ("orders?status=pending&sort=-id", "accounts?state=banned", "bans?name=shop+07", "audit?actor=ann"):
        page.goto(path)
        assert 1 == page.get_by_text("Filters: 1 set", exact=True).count(), path
        matches = page.locator(".matches").bounding_box()
        assert matches is not None
        assert matches["y"] < 844, path
    page.goto("orders?petId=cat")
    assert page.get_by_label("Pet id").is_visible()


@pytest.mark.parametrize("page", [{"forced_colors": "active"}], indirect=True)
def test_a_legend_keeps_its_colours_where_the_system_forces_others(page: "Page") -> None:
    page.goto(ACME)
    colours = page.locator(".swatch").evaluate_all("found => found.map(each => getComputedStyle(each).backgroundColor)")
    assert len(set(colours)) > 1


def test_orders_are_selected_together_and_the_question_names_what_it_does(page: "Page") -> None:
    page.goto("orders?status=pending")
    page.get_by_role("link", name="Select all on this page").first.click()
    assert 50 == page.locator("input[name=order]:checked").count()
    page.get_by_role("link", name="Select none").first.click()
    for number in (1, 2, 3):
        page.get_by_label(f"Order {number}", exact=True).check()
    page.get_by_role("group", name="With the selected orders, below the list").get_by_role(
        "button", name="Cancel"
    ).click()
    assert ["Cancel 3 orders"] == page.locator("main button").all_inner_texts()
    page.get_by_role("link", name="Keep them").click()
    assert f"{ORDERS - 1} orders match." in page.inner_text("main")


def test_the_sample_data_is_entered_again_as_the_page_says(chromium: "Browser", tmp_path: Path) -> None:
    with served_demo(tmp_path / "log") as demo:
        page = chromium.new_page()
        page.goto(f"{demo.admin}/console/accounts")
        command = page.inner_text("pre")
        link = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.strip()
        page.goto(link)
        assert "Accounts" == page.inner_text("h1")
        page.close()
