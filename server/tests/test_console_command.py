"""`petstore console`, and the console of servers that run: one process, workers, and none."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from testing.cli import CommandLine
from testing.process import UNLIMITED, Server, new_key, petstore, serving
from testing.redis_engine import shared_redis

LINK = re.compile(r"http://127\.0\.0\.1:8081/console/sign-in\?token=[\w-]{27}\n")  # 160 bits in base64


@pytest.fixture(name="petstore_command")
def _command(tmp_path: Path) -> CommandLine:
    command = CommandLine(tmp_path / "store.db")
    command.must("db", "migrate")
    return command


def test_the_link_is_the_only_line_on_stdout(petstore_command: CommandLine) -> None:
    done = petstore_command.must("console")
    assert LINK.fullmatch(done.out)
    assert "once and for 5 minutes" in done.err


def test_json_has_the_link_and_its_end(petstore_command: CommandLine) -> None:
    assert {"url", "expiresAt"} == set(petstore_command.must("console", "--json").json())


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({"PETSTORE_ADMIN_HOST": "0.0.0.0", "PETSTORE_ADMIN_PORT": "9000"}, "http://127.0.0.1:9000/console/"),
        ({"PETSTORE_ADMIN_HOST": "::1"}, "http://[::1]:8081/console/"),
        ({"PETSTORE_ADMIN_HOST": "ops.internal"}, "http://ops.internal:8081/console/"),
    ],
)
def test_the_link_leads_to_the_admin_port(
    petstore_command: CommandLine, settings: dict[str, str], address: str
) -> None:
    assert petstore_command.must("console", **settings).out.startswith(address)


def test_another_address_can_be_given(petstore_command: CommandLine) -> None:
    out = petstore_command.must("console", "--url", "https://ops.example.com/", PETSTORE_ADMIN_PORT="0").out
    assert out.startswith("https://ops.example.com/console/sign-in?token=")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "ops.example.com",
        "https://",
        "https://me@ops",
        "https://ops/console/",
        "https://ops?a=1",
        "http://[::1",
    ],
)
def test_an_address_that_no_browser_can_use_is_refused(petstore_command: CommandLine, url: str) -> None:
    done = petstore_command("console", "--url", url)
    assert (2, "") == (done.code, done.out)
    assert "'--url': must be an http:// or https:// address without a path" in done.err


def test_an_address_that_the_server_will_refuse_gets_a_warning(petstore_command: CommandLine) -> None:
    command = ["console", "--url", "https://ops.example.com:8443"]
    warning = "ops.example.com is not in PETSTORE_CONSOLE_HOSTS, so the server will refuse the link with 421."
    assert warning in petstore_command.must(*command).err
    allowed = petstore_command.must(*command, PETSTORE_CONSOLE_HOSTS="ops.example.com")
    assert "PETSTORE_CONSOLE_HOSTS" not in allowed.err
    assert "PETSTORE_CONSOLE_HOSTS" not in petstore_command.must("console").err


def test_an_unknown_port_and_a_removed_console_are_explained(petstore_command: CommandLine) -> None:
    unknown = petstore_command("console", PETSTORE_ADMIN_PORT="0")
    assert (2, "--url" in unknown.err) == (unknown.code, True)
    removed = petstore_command("console", PETSTORE_CONSOLE="off")
    assert (2, "PETSTORE_CONSOLE is off" in removed.err) == (removed.code, True)


def test_the_operator_is_named_in_the_audit_log(petstore_command: CommandLine) -> None:
    petstore_command.must("console", "--as", "ada")
    entries = petstore_command.must("audit", "--json").json_lines()
    assert ("operator:ada", "console.create_link") == (entries[-1]["actor"], entries[-1]["action"])


@pytest.mark.parametrize("value", ["http://ops", "ops:80", "a b", "*"])
def test_host_names_are_checked(petstore_command: CommandLine, value: str) -> None:
    done = petstore_command("console", PETSTORE_CONSOLE_HOSTS=value)
    assert (2, "PETSTORE_CONSOLE_HOSTS" in done.err) == (done.code, True)


@contextmanager
def signed_in(server: Server, store: Path) -> Iterator[httpx2.Client]:
    link = petstore(store, "console", "--as", "ada", "--url", server.admin)
    assert 0 == link.returncode, link.stderr
    with httpx2.Client(follow_redirects=True) as browser:
        page = browser.get(link.stdout.strip())
        assert (200, True) == (page.status_code, "Overview" in page.text)
        yield browser


def answered(browser: httpx2.Client, server: Server) -> int:
    """The answered requests that the overview shows."""
    found = re.search(r"<dt>Answered</dt><dd>([\d,]+)</dd>", browser.get(f"{server.admin}/console/").text)
    assert found is not None
    return int(found[1].replace(",", ""))


@pytest.fixture(name="with_workers", params=[False, True])
def _with_workers(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"PETSTORE_WORKERS": "2", "PETSTORE_REDIS_URL": shared_redis().empty()} if request.param else {}


def test_a_server_shows_the_requests_of_all_its_processes(tmp_path: Path, with_workers: dict[str, str]) -> None:
    store = tmp_path / "store.db"
    with serving(store, **with_workers) as server, signed_in(server, store) as browser:
        key, _ = new_key(store, plan=UNLIMITED)
        before = answered(browser, server)
        for _ in range(8):  # each over a connection of its own, so that both workers get some
            with server.client(key) as client:
                assert 200 == client.get("/v1/store/orders").status_code
        assert before + 8 == answered(browser, server)
        assert "acme" in browser.get(f"{server.admin}/console/").text  # the account is the closest to its limit
        ended = petstore(store, "console", "--end-sessions")
        assert "Sessions ended: 1." in ended.stdout
        assert 401 == browser.get(f"{server.admin}/console/").status_code
        assert 0 == server.stop()
        assert "Traceback" not in server.log.read_text()


def test_a_server_without_a_console_has_no_such_path(tmp_path: Path, with_workers: dict[str, str]) -> None:
    with serving(tmp_path / "store.db", PETSTORE_CONSOLE="off", **with_workers) as server:
        for path in ("/console", "/console/", "/console/sign-in", "/console/static/console.css"):
            assert 404 == httpx2.get(f"{server.admin}{path}").status_code
        assert 200 == httpx2.get(f"{server.admin}/readyz").status_code
        assert 0 == server.stop()


def uploaded(browser: httpx2.Client, server: Server, content: str) -> str:
    """Upload a file of orders, and wait until it was checked; the address of its page."""
    token = form_token(browser.get(f"{server.admin}/console/imports/new").text)
    page = browser.post(
        f"{server.admin}/console/imports/new",
        data={"form_token": token},
        files={"file": ("orders.jsonl", content.encode())},
    )
    eventually_says(browser, str(page.url), "What importing it would do")
    return str(page.url)


def form_token(page: str) -> str:
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def eventually_says(browser: httpx2.Client, address: str, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in (page := browser.get(address).text):
        assert time.monotonic() < deadline, page
        time.sleep(0.05)


def test_a_server_imports_an_uploaded_file(tmp_path: Path, with_workers: dict[str, str]) -> None:
    store = tmp_path / "store.db"
    with serving(store, **with_workers) as server, signed_in(server, store) as browser:
        address = uploaded(browser, server, '{"id": 1}\n{"id": 2}\n')
        token = form_token(browser.get(address).text)
        browser.post(f"{address}/import", data={"form_token": token})
        eventually_says(browser, address, "The audit log has it as")
        key, _ = new_key(store, plan=UNLIMITED)
        with server.client(key) as client:
            assert [1, 2] == [order["id"] for order in client.get("/v1/store/orders").json()]
        assert 0 == server.stop()
        assert "Traceback" not in server.log.read_text()


def test_a_server_that_stops_ends_its_import_and_deletes_the_upload(
    tmp_path: Path, with_workers: dict[str, str]
) -> None:
    store, temporary = tmp_path / "store.db", tmp_path / "tmp"
    temporary.mkdir()
    with (
        serving(store, TMPDIR=str(temporary), **with_workers) as server,
        signed_in(server, store) as browser,
    ):
        address = uploaded(browser, server, "".join(f'{{"id": {number}}}\n' for number in range(1, 50_001)))
        browser.post(f"{address}/import", data={"form_token": form_token(browser.get(address).text)})
        assert 0 == server.stop()
        assert [] == list(temporary.iterdir())
        assert "Traceback" not in server.log.read_text()
