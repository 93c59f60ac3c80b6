"""The docs page in a real browser, against a real server: what a partner does with it on the first day."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from testing.browser import ServedDemo, Visit, served_demo
from testing.documents import SOURCE
from testing.process import petstore_process, serving
from testing.subprocesses import busy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.system

OTHER_HOST = "https://api.petstore.example/v1"
GUIDE = SOURCE / "api" / "guide" / "guide.md"


class DocsVisit(Visit):
    """The documentation page."""

    def __init__(self, page: "Page", demo: ServedDemo) -> None:
        super().__init__(page, demo, f"{demo.api}/")
        page.goto(f"{demo.api}/docs")

    def authorize(self) -> None:
        self.page.click(".btn.authorize")
        self.page.fill(".modal-ux input", self.demo.key)
        self.page.click(".modal-ux .btn.authorize")
        self.page.click(".modal-ux .btn-done")

    def open(self, operation: str) -> "Locator":
        block = self.page.locator(f"#operations-orders-{operation}")
        block.locator(".opblock-summary-control").click()
        return block

    def execute(self, operation: "Locator", status: int, order: str = "") -> "Locator":
        """Send the request of an open operation; its response, once it has the status."""
        if order:
            operation.get_by_placeholder("orderId").fill(order)
        operation.locator(".execute").click()
        response = operation.locator(".live-responses-table")
        self.shows(response.locator(".response-col_status").nth(1), str(status))
        return response


@pytest.fixture(name="demo", scope="module")
def _demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDemo]:
    with served_demo(tmp_path_factory.mktemp("demo") / "log", PETSTORE_BASE_URL=OTHER_HOST) as demo:
        yield demo


@pytest.fixture(name="visit")
def _visit(chromium: "Browser", demo: ServedDemo) -> Iterator[DocsVisit]:
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    yield DocsVisit(context.new_page(), demo)
    context.close()


def test_a_partner_lists_the_orders_and_cancels_one_with_a_pasted_key(visit: DocsVisit) -> None:
    visit.authorize()
    response = visit.execute(visit.open("listOrders"), 200)
    for shown in ('"shipDate"', "x-ratelimit-limit: 60", "x-ratelimit-remaining: 59", "x-ratelimit-reset: "):
        visit.shows(response, shown)
    visit.shows(response, "ratelimit-policy: ")

    cancelling = visit.open("cancelOrder")
    visit.shows(visit.execute(cancelling, 204, visit.demo.pending), "x-ratelimit-remaining: 58")
    response = visit.execute(cancelling, 409)
    visit.shows(response, '"order_already_cancelled"')
    visit.shows(response, "x-ratelimit-remaining: 57")

    assert visit.requests_elsewhere() == []
    assert visit.complaints == []


def test_the_example_order_exists_in_the_sample_data(visit: DocsVisit) -> None:
    visit.authorize()
    visit.execute(visit.open("cancelOrder"), 204)
    assert f"{visit.demo.api}/v1/store/orders/7" in visit.requested


def test_the_key_is_hidden_while_it_is_typed(visit: DocsVisit) -> None:
    visit.page.click(".btn.authorize")
    field = visit.page.locator(".modal-ux input")
    field.press_sequentially(visit.demo.key)
    assert "disc" == field.evaluate("element => getComputedStyle(element).webkitTextSecurity")
    assert visit.demo.key == field.input_value()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_either_colour_scheme(visit: DocsVisit, scheme: Literal["light", "dark"]) -> None:
    visit.page.emulate_media(color_scheme=scheme)
    visit.open("cancelOrder").locator(".parameter__name").wait_for()
    assert (255, 255, 255) == _colour(visit, "body", "backgroundColor") or scheme == "dark"
    for selector in (".info h2", ".info p", ".opblock-tag", ".opblock-summary-path", ".parameter__name", "h4", "th"):
        text, ground = _colour(visit, f"#page {selector}", "color"), _colour(visit, "body", "backgroundColor")
        lighter, darker = sorted((_luminance(text), _luminance(ground)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) > 4.5, selector  # WCAG 2.2, 1.4.3


def _colour(visit: DocsVisit, selector: str, name: str) -> tuple[int, ...]:
    text = visit.page.locator(selector).first.evaluate("(element, name) => getComputedStyle(element)[name]", name)
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def _luminance(colour: tuple[int, ...]) -> float:
    parts = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def test_without_a_key_the_page_shows_what_is_missing(visit: DocsVisit) -> None:
    visit.shows(visit.execute(visit.open("listOrders"), 401), '"missing_api_key"')
    assert visit.complaints == []


def test_the_page_names_the_public_address_but_sends_to_its_own(visit: DocsVisit) -> None:
    visit.shows(visit.page.locator(".info"), OTHER_HOST)
    assert visit.page.locator(".servers option").all_inner_texts() == ["/v1 - This server"]


def test_the_reader_chooses_the_version_of_the_api(visit: DocsVisit) -> None:
    current = visit.page.locator("nav[aria-label='Version of the API'] [aria-current]")
    visit.shows(current, "Version 1 (stable)")
    visit.page.get_by_role("navigation", name="Version of the API").get_by_text("Version 2").click()
    visit.shows(current, "Version 2 (beta)")
    visit.shows(visit.page.locator(".info"), OTHER_HOST.replace("v1", "v2"))
    assert visit.page.locator(".servers option").all_inner_texts() == ["/v2 - This server"]
    assert visit.page.locator("#yaml").get_attribute("href") == "openapi-v2.yaml"
    visit.authorize()
    visit.shows(visit.execute(visit.open("listOrders"), 200), '"updatedAt"')
    assert visit.requested[-1].startswith(f"{visit.demo.api}/v2/store/orders?")
    visit.page.goto(f"{visit.demo.api}/docs?api=v9")
    visit.shows(current, "Version 1 (stable)")
    assert visit.complaints == []


def test_identifiers_of_64_bits_are_sent_with_every_digit(visit: DocsVisit) -> None:
    visit.execute(visit.open("cancelOrder"), 401, "9223372036854775807")
    assert f"{visit.demo.api}/v1/store/orders/9223372036854775807" in visit.requested


@contextmanager
def visiting_orders(chromium: "Browser", folder: Path, orders: str) -> Iterator[DocsVisit]:
    """The page of a server with these orders, in CSV, and with a key for them."""
    store, file = folder / "store.db", folder / "orders.csv"
    file.write_text(orders)
    for command in (("orders", "import", str(file)), ("accounts", "create", "acme", "--plan", "free")):
        assert 0 == petstore_process(store, *command).returncode
    key = petstore_process(store, "keys", "create", "acme").stdout.strip()
    with serving(store) as server:
        visit = DocsVisit(chromium.new_page(), ServedDemo(server.api, server.admin, key, "", "1"))
        visit.authorize()
        yield visit
        assert [] == visit.complaints
        visit.page.close()


def test_identifiers_of_64_bits_are_shown_with_every_digit(chromium: "Browser", tmp_path: Path) -> None:
    with visiting_orders(chromium, tmp_path, "id,quantity\n9007199254740993,1\n") as visit:  # 2^53 + 1
        visit.shows(visit.execute(visit.open("listOrders"), 200), '[{"id":9007199254740993,"quantity":1}]')


def test_the_guide_is_readable_and_complains_of_nothing(visit: DocsVisit) -> None:
    visit.page.get_by_role("navigation", name="On this page").get_by_text("Guide").click()
    visit.shows(visit.page.locator("h1"), "Using the API")
    visit.shows(visit.page.locator("main"), OTHER_HOST)
    visit.page.get_by_role("link", name="follow changes").first.click()
    assert visit.page.url.endswith("/docs/guide#following-changes")
    assert visit.complaints == []


def test_the_guides_javascript_keeps_every_digit(visit: DocsVisit) -> None:
    scripts = re.findall(r"```javascript\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (script,) = [text for text in scripts if "parseOrders" in text]
    shown = visit.page.evaluate(
        f"""async () => {{
            {script}
            globalThis.fetch = async () => new Response('[{{"id":9223372036854775807,"quantity":2}}]');
            const [order] = await listOrders("", "");
            return [String(order.id), typeof order.id, order.quantity];
        }}"""
    )
    assert shown == ["9223372036854775807", "bigint", 2]


def test_what_the_pages_policy_refuses_would_be_noticed(visit: DocsVisit) -> None:
    with visit.page.expect_console_message():
        visit.page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: '1'}))")
    assert len(visit.complaints) == 1
    assert "Content Security Policy" in visit.complaints[0]


def test_a_response_of_megabytes_does_not_freeze_the_page(chromium: "Browser", tmp_path: Path) -> None:
    orders = "id,petId,quantity\n" + "".join(f"{number},{number % 9},2\n" for number in range(1, 200_001))
    with visiting_orders(chromium, tmp_path, orders) as visit:
        response = visit.execute(visit.open("listOrders"), 200)
        visit.shows(response, "is shown here. The curl command above gets everything.")
        assert len(response.inner_text()) < 120_000
        began = time.monotonic()
        visit.page.evaluate("document.title")
        assert time.monotonic() - began < 1.0 + busy()


def test_the_guide_has_its_contents_and_the_address_of_this_server(chromium: "Browser", tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as server:
        page = chromium.new_page()
        page.goto(f"{server.api}/docs/guide")
        assert f"export API={server.api}/v1" in page.inner_text("main")
        assert "127.0.0.1:8080" not in page.inner_text("main")
        contents = page.get_by_role("navigation", name="Contents").get_by_role("link")
        assert contents.count() >= 4
        contents.nth(2).click()
        assert page.locator(f"h2[id='{page.url.partition('#')[2]}']").is_visible()
        page.close()
