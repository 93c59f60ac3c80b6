"""The operator console in an incident, in a real browser without scripts: many bans, refused forms, double clicks."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testing.browser import served_demo
from testing.busy_store import LONG_NAME, ORDERS, fill_busy_store
from testing.process import Server, petstore_process, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.system

WIDTHS = (1280, 768, 390, 320)
ACME = "accounts/acme"
PAGES = (
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
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        for path in PAGES:
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


def test_a_refused_form_leads_to_its_first_error(page: "Page") -> None:
    page.goto("accounts")
    page.get_by_label("Name", exact=True).fill("a/b")
    page.get_by_label("Requests per minute").fill("60")
    page.get_by_role("button", name="Create account").click()
    assert page.title().startswith("Error: ")
    page.wait_for_function("document.activeElement.id == 'new-name'")  # the focus follows when the page has loaded
    field = page.locator("#new-name").bounding_box()
    assert field is not None
    assert 0 <= field["y"] < 900
    summary = page.get_by_role("alert").get_by_role("link")
    assert ["#new-name", "#new-per_minute"] == [each.get_attribute("href") for each in summary.all()]
    assert "The plan free has fixed limits" in page.get_by_role("alert").inner_text()


def test_a_double_click_uploads_and_imports_a_file_once(page: "Page") -> None:
    page.goto("imports/new")
    row = b'{"id": 5, "petId": 7, "quantity": 3}'
    page.set_input_files("#file", {"name": "one.jsonl", "mimeType": "application/jsonl", "buffer": row})
    page.get_by_role("button", name="Upload", exact=True).dblclick(delay=200)
    page.get_by_role("button", name="Import", exact=True).dblclick()
    page.get_by_role("heading", name="Imported", exact=True).wait_for()
    page.goto("imports")
    assert 1 == page.get_by_role("link", name="one.jsonl").count()
    assert "2 imports." == page.inner_text(".matches")


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
