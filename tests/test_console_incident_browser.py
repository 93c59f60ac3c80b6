"""The operator console in an incident, in a real browser without scripts: many bans, refused forms, Redis down."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testing.browser import chromium, served_demo
from testing.busy_store import BANNED, KEYS, LONG_NAME, ORDERS, fill_busy_store
from testing.process import Server, petstore_process, serving
from testing.redis_engine import own_redis

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.system

WIDTHS = (1280, 768, 390, 320)
ACME = "/accounts/acme"
PAGES = (
    *("/", "/?period=week", "/accounts", f"/accounts/{LONG_NAME}", ACME, "/bans", "/orders", "/orders/120"),
    *("/imports", "/imports/new", "/audit", f"/accounts/{LONG_NAME}/suspend", "/orders?petId=cat"),
)


@pytest.fixture(name="browser", scope="module")
def _browser() -> Iterator["Browser"]:
    with chromium() as browser:
        yield browser


@pytest.fixture(name="store", scope="module")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("busy") / "store.db"
    fill_busy_store(file)
    return file


@pytest.fixture(name="server", scope="module")
def _server(store: Path) -> Iterator[Server]:
    with serving(store) as server:
        yield server


def sign_in_link(store: Path, server: Server, name: str = "ada") -> str:
    done = petstore_process(store, "console", "--as", name, "--url", server.admin)
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


@contextmanager
def signed_in(browser: "Browser", store: Path, server: Server, **options: Any) -> Iterator["Page"]:
    """A page of a browser without scripts, for an operator who has signed in."""
    context: BrowserContext = browser.new_context(java_script_enabled=False, **options)
    page = context.new_page()
    page.goto(sign_in_link(store, server))
    yield page
    context.close()


@pytest.fixture(name="page")
def _page(browser: "Browser", store: Path, server: Server) -> Iterator["Page"]:
    with signed_in(browser, store, server, viewport={"width": 1280, "height": 900}) as page:
        yield page


def address(server: Server, path: str) -> str:
    return f"{server.admin}/console{path}"


def test_sixty_bans_are_one_warning_and_a_list_of_their_own(page: "Page", server: Server) -> None:
    page.goto(address(server, "/"))
    page.get_by_text("checks,").wait_for()
    health = page.locator(".health")
    assert 1 == health.locator("> .checks").get_by_text("keys are banned").count()
    assert page.locator("#requests").bounding_box()["y"] < 900  # type: ignore[index]  # within the first screen
    health.get_by_role("link", name="Lift ban").click()
    page.wait_for_load_state()
    assert 50 == page.get_by_role("button", name="Lift ban").count()
    page.get_by_role("link", name="Next").click()
    assert BANNED - 50 == page.get_by_role("button", name="Lift ban").count()
    page.goto(address(server, "/accounts?state=banned"))
    assert f"{BANNED} accounts match." in page.inner_text("main")


def test_the_keys_of_an_account_are_paged_and_filtered(page: "Page", server: Server) -> None:
    page.goto(address(server, ACME))
    assert (25, f"{KEYS} keys.") == (
        page.locator("table.keys tbody tr").count(),
        page.inner_text(".matches"),
    )
    page.get_by_role("link", name="Ended").click()
    assert KEYS // 2 == page.locator("table.keys tbody tr").count()
    assert 0 == page.get_by_role("button", name="Revoke").count()


def test_pages_fit_and_tables_become_rows_with_names(browser: "Browser", store: Path, server: Server) -> None:
    problems = []
    with signed_in(browser, store, server) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            for path in PAGES:
                page.goto(address(server, path))
                found = page.evaluate("document.documentElement.scrollWidth")
                if found > width:
                    problems.append(f"{path} at {width}: {found} pixels")
            page.goto(address(server, "/orders"))
            is_open = page.get_by_label("Pet id").is_visible()
            assert is_open is (width > 704), f"filters at {width}"
            name = page.evaluate("getComputedStyle(document.querySelector('td[data-name=Status]'), '::before').content")
            assert ('"Status"' if width <= 768 else "none") == name, f"names at {width}"
    assert [] == problems


def test_filters_that_are_set_do_not_push_the_list_off_a_phone(browser: "Browser", store: Path, server: Server) -> None:
    with signed_in(browser, store, server, viewport={"width": 390, "height": 844}) as page:
        for path in (
            "/orders?status=pending&sort=-id",
            "/accounts?state=banned",
            "/bans?name=shop+07",
            "/audit?actor=ann",
        ):
            page.goto(address(server, path))
            assert 1 == page.get_by_text("Filters: 1 set", exact=True).count(), path
            matches = page.locator(".matches").bounding_box()
            assert matches is not None
            assert matches["y"] < 844, path
        page.goto(address(server, "/orders?petId=cat"))
        assert page.get_by_label("Pet id").is_visible()


def test_meters_are_next_to_their_text(browser: "Browser", store: Path, server: Server) -> None:
    for width in WIDTHS:
        with signed_in(browser, store, server, viewport={"width": width, "height": 800}) as page:
            page.goto(address(server, "/accounts"))
            used = page.locator(".used:visible").first
            meter, text = used.locator("meter").bounding_box(), used.locator("span").bounding_box()
            assert meter is not None
            assert text is not None
            assert abs(meter["y"] + meter["height"] / 2 - text["y"] - text["height"] / 2) < 8, width


def test_a_legend_keeps_its_colours_where_the_system_forces_others(
    browser: "Browser", store: Path, server: Server
) -> None:
    with signed_in(browser, store, server, forced_colors="active") as page:
        page.goto(address(server, ACME))
        colours = page.locator(".swatch").evaluate_all(
            "found => found.map(each => getComputedStyle(each).backgroundColor)"
        )
        assert len(set(colours)) > 1


def test_a_refused_form_leads_to_its_first_error(page: "Page", server: Server) -> None:
    page.goto(address(server, "/accounts"))
    page.get_by_label("Name", exact=True).fill("a/b")
    page.get_by_label("Requests per minute").fill("60")
    page.get_by_role("button", name="Create account").click()
    assert page.title().startswith("Error: ")
    assert "new-name" == page.evaluate("document.activeElement.id")
    field = page.locator("#new-name").bounding_box()
    assert field is not None
    assert 0 <= field["y"] < 900
    summary = page.get_by_role("alert").get_by_role("link")
    assert ["#new-name", "#new-per_minute"] == [each.get_attribute("href") for each in summary.all()]
    assert "The plan free has fixed limits" in page.get_by_role("alert").inner_text()


def test_a_double_click_creates_one_key_and_shows_it(page: "Page", server: Server, store: Path) -> None:
    page.goto(address(server, "/accounts/shop 00"))
    page.get_by_role("button", name="Create key").dblclick()
    assert page.locator(".secret").inner_text().startswith("pso_live_")
    page.goto(address(server, "/accounts/shop 00"))
    assert "2 keys." == page.inner_text(".matches")


def test_a_double_click_uploads_and_imports_a_file_once(page: "Page", server: Server) -> None:
    page.goto(address(server, "/imports/new"))
    row = b'{"id": 5, "petId": 7, "quantity": 3}'
    page.set_input_files("#file", {"name": "one.jsonl", "mimeType": "application/jsonl", "buffer": row})
    page.get_by_role("button", name="Check the file").dblclick(delay=200)
    page.get_by_role("button", name="Import", exact=True).dblclick()
    page.get_by_role("heading", name="Imported", exact=True).wait_for()
    page.goto(address(server, "/imports"))
    assert 1 == page.get_by_role("link", name="one.jsonl").count()
    assert "2 imports." == page.inner_text(".matches")


def test_the_audit_log_and_the_imports_say_how_many_match(page: "Page", server: Server) -> None:
    page.goto(address(server, "/audit?subject=shop+30"))
    assert "3 changes match." == page.inner_text(".matches")
    page.goto(address(server, "/audit?request=abc123-7f"))
    assert "1 change matches." == page.inner_text(".matches")


def test_a_conflict_says_what_changed_and_by_whom(
    browser: "Browser", page: "Page", store: Path, server: Server
) -> None:
    page.goto(address(server, "/accounts/shop 01"))
    context = browser.new_context(java_script_enabled=False)
    other = context.new_page()
    other.goto(sign_in_link(store, server, "bob"))
    other.goto(address(server, "/accounts/shop 01"))
    other.locator("#plan-plan").select_option("pro")
    other.get_by_role("button", name="Change plan").click()
    context.close()
    page.locator("#plan-plan").select_option("business")
    page.get_by_role("button", name="Change plan").click()
    text = page.inner_text("main")
    assert "Nothing was changed" in text
    assert "Changed the plan shop 01" in text
    assert "operator bob" in text
    page.get_by_role("link", name="Show shop 01 as it is now").click()
    assert "pro plan" in page.inner_text("main")


def test_orders_are_selected_together_and_the_question_names_what_it_does(page: "Page", server: Server) -> None:
    page.goto(address(server, "/orders?status=pending"))
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
    assert 119 == ORDERS - 1
    assert "119 orders match." in page.inner_text("main")


def test_the_search_box_finds_everything(page: "Page", server: Server) -> None:
    for text, path in (
        ("120", "/orders/120"),
        ("key_acme39", "/keys/key_acme39"),
        ("acme", "/accounts/acme"),
        ("import-busy", "/imports/import-busy"),
        ("abc123-7f", "/audit?request=abc123-7f"),
        ("shop", "/accounts?search=shop"),
    ):
        page.goto(address(server, "/"))
        page.get_by_role("searchbox", name="Search for an order").fill(text)
        page.get_by_role("button", name="Search", exact=True).click()
        assert address(server, path) == page.url
    page.goto(address(server, "/audit?subject=acme&action=account.create"))
    assert "Created the account acme" in page.inner_text("main")
    page.goto(address(server, "/audit?request=abc123-7f"))
    assert "Cancelled the order 120" in page.inner_text("main")


def test_lists_are_sorted_by_their_headers(page: "Page", server: Server) -> None:
    page.goto(address(server, "/orders"))
    page.get_by_role("columnheader", name="Order").get_by_role("link").click()
    assert "descending" == page.get_by_role("columnheader", name="Order").get_attribute("aria-sort")
    assert "120" == page.locator("tbody th").first.inner_text()
    page.goto(address(server, "/accounts"))
    page.get_by_role("columnheader", name="Account").get_by_role("link").click()
    assert "shop 59" == page.locator("tbody th").first.inner_text()


def test_a_contact_is_edited_and_an_account_closed(page: "Page", server: Server) -> None:
    page.goto(address(server, "/accounts/shop 02"))
    page.get_by_label("Contact", exact=True).fill("shop@example.com")
    page.get_by_role("button", name="Save").click()
    assert "Contact: shop@example.com" in page.inner_text("main")
    page.get_by_role("button", name="Close", exact=True).click()
    assert "This cannot be reversed." in page.inner_text("main")
    page.get_by_role("button", name="Close shop 02").click()
    assert "Closed shop 02, and revoked 1 key." in page.inner_text("main")


def test_a_filtered_list_is_exported(page: "Page", server: Server) -> None:
    page.goto(address(server, "/orders?status=cancelled"))
    page.get_by_label("Format of the export").select_option("jsonl")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export these").click()
    assert 1 == len(download.value.path().read_text().splitlines())


def test_two_consoles_on_one_host_do_not_sign_each_other_out(
    browser: "Browser", store: Path, server: Server, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    fill_busy_store(other)
    with serving(other) as second, signed_in(browser, store, server) as page:
        page.goto(sign_in_link(other, second))
        for each in (server, second):
            page.goto(address(each, "/"))
            assert "Overview" == page.inner_text("h1")


def test_signing_in_leads_to_the_page_that_was_wanted(browser: "Browser", store: Path, server: Server) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address(server, "/orders?status=pending"))
    assert "Sign in to the console" == page.inner_text("h1")
    page.goto(sign_in_link(store, server))
    assert address(server, "/orders?status=pending") == page.url
    context.close()


def test_the_sample_data_is_entered_again_as_the_page_says(browser: "Browser", tmp_path: Path) -> None:
    with served_demo(tmp_path / "log") as demo:
        page = browser.new_page()
        page.goto(f"{demo.admin}/console/accounts")
        command = page.inner_text("pre")
        link = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.strip()
        page.goto(link)
        assert "Accounts" == page.inner_text("h1")
        page.close()


def test_the_console_works_while_redis_is_down(browser: "Browser", tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    fill_busy_store(store)
    with (
        own_redis() as redis,
        serving(store, PETSTORE_REDIS_URL=redis.url) as server,
        signed_in(browser, store, server) as page,
        redis.gone(),
    ):
        for path in ("/", "/accounts", ACME):
            for _ in range(60):  # what was read seconds ago is still shown
                response = page.goto(address(server, path))
                assert response is not None
                assert 200 == response.status
                if "The usage cannot be read from Redis" in page.inner_text("main"):
                    break
                page.wait_for_timeout(500)
            else:
                pytest.fail(f"{path} does not say what is missing")
        page.get_by_role("button", name="Create key").click()
        assert page.locator(".secret").inner_text().startswith("pso_live_")


def test_a_history_that_is_off_is_not_shown_as_no_requests(browser: "Browser", tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    fill_busy_store(store)
    off = {"PETSTORE_USAGE_DAILY_RETENTION_DAYS": "0", "PETSTORE_USAGE_HOURLY_RETENTION_DAYS": "0"}
    with serving(store, **off) as server, signed_in(browser, store, server) as page:
        page.goto(address(server, "/?period=week"))
        assert "No history is kept, because PETSTORE_USAGE_DAILY_RETENTION_DAYS is 0." in page.inner_text("main")
        page.goto(address(server, ACME))
        assert "No requests in this period" not in page.inner_text("main")


def test_bans_are_lifted_together(page: "Page", server: Server) -> None:
    """The last test: the others need the bans. One of them lifts one."""
    page.goto(address(server, "/bans"))
    before = int(page.inner_text(".matches").split()[0])
    assert 1 == page.get_by_text("did not wait for the Retry-After").count()
    page.get_by_role("link", name="Select all on this page").click()
    page.get_by_role("button", name="Lift selected bans").click()
    assert "Lifted 50 bans; these keys work again within a second." in page.inner_text("main")
    page.goto(address(server, "/bans"))
    assert f"{before - 50} banned keys." == page.inner_text(".matches")
