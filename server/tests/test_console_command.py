"""`petstore console`, and the console of servers that run: one process, workers, and none."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from testing.cli import CommandLine
from testing.process import UNLIMITED, Server, new_key, petstore, serving, statuses
from testing.redis_engine import shared_redis
from testing.service import Service
from testing.subprocesses import PATIENCE, within

LINK = re.compile(r"http://127\.0\.0\.1:8081/console/sign-in\?token=[\w-]{27}\n")  # 160 bits in base64


def test_the_link_is_the_only_line_on_stdout_and_the_audit_log_has_who_asked_for_it_and_its_role(
    cli: CommandLine,
) -> None:
    done = cli.must("console", "--as", "ada")
    assert LINK.fullmatch(done.out)
    assert "once and for 5 minutes" in done.err
    assert {"url", "role", "expiresAt"} == set(cli.must("console", "--json").json())
    for role in ("viewer", "operator", "admin"):
        assert role == cli.must("console", "--role", role, "--json").json()["role"]
    entries = cli.must("audit", "--json").json_lines()
    assert ("operator:ada", "console.create_link") == (entries[0]["actor"], entries[0]["action"])
    assert ["admin", "admin", "viewer", "operator", "admin"] == [entry["after"]["role"] for entry in entries]
    cli("console", "--role", "owner").fails(2, "'viewer', 'operator', 'admin'")


def test_sessions_are_listed_and_ended_one_by_one(cli: CommandLine, tmp_path: Path) -> None:
    assert "There are no sessions.\n" == cli.must("console", "--sessions").out
    assert [] == cli.must("console", "--sessions", "--json").json()
    with serving(tmp_path / "store.db") as server, httpx2.Client() as browser, httpx2.Client() as other:
        for each, name, role in ((browser, "ada", "admin"), (other, "bob", "viewer"), (httpx2, "bob", "operator")):
            link = cli.must("console", "--as", name, "--role", role, "--url", server.admin).out.strip()
            assert 303 == each.get(link).status_code
        listed = cli.must("console", "--sessions").out
        assert ["SESSION", "NAME", "ROLE", "SIGNED", "IN", "LAST", "REQUEST", "ENDS"] == listed.splitlines()[0].split()
        sessions = {each["role"]: each for each in cli.must("console", "--sessions", "--json").json()}
        assert {"admin": "ada", "viewer": "bob", "operator": "bob"} == {
            role: each["name"] for role, each in sessions.items()
        }
        assert {"id", "name", "role", "beganAt", "usedAt", "expiresAt"} == set(sessions["viewer"])
        assert sessions["viewer"]["id"] in listed
        ended = cli.must("console", "--end-session", sessions["viewer"]["id"], "--as", "carol")
        assert "Ended the session of bob. Unused links of bob are invalid now.\n" == ended.out
        assert "bob has 1 more session: `petstore console --sessions`\n" == ended.err
        assert [200, 401] == [each.get(f"{server.admin}/console/").status_code for each in (browser, other)]
        assert "" == cli.must("console", "--end-session", sessions["operator"]["id"]).err
        refused = cli("console", "--end-session", sessions["viewer"]["id"], "--json")
        assert "session_not_found" == refused.error()["code"]
    entry = cli.must("audit", "--action", "console.end_session", "--json").json_lines()[0]
    assert ("operator:carol", "bob") == (entry["actor"], entry["before"]["operator"])


def test_an_address_that_cannot_be_used_is_refused(cli: CommandLine) -> None:
    wrong = ["ftp://x", "ops.example.com", "https://", "https://me@ops", "https://ops/console/", "http://[::1"]
    for url in (*wrong, "https://ops example", "https://ops\n"):
        problem = "'--url': must be an http:// or https:// address without a path"
        cli("console", "--url", url).fails(2, problem)
    for hosts in ("http://ops", "ops:80", "a b", "*"):
        cli("console", PETSTORE_CONSOLE_HOSTS=hosts).fails(2, "PETSTORE_CONSOLE_HOSTS")


@contextmanager
def signed_in(server: Server, store: Path) -> Iterator[httpx2.Client]:
    """A browser that is signed in to the console of a server, which then stops without an error."""
    link = petstore(store, "console", "--as", "ada", "--url", server.admin)
    assert 0 == link.returncode, link.stderr
    with httpx2.Client(follow_redirects=True) as browser:
        page = browser.get(link.stdout.strip())
        assert 200 == page.status_code
        assert "Overview" in page.text
        yield browser
    assert 0 == server.stop()
    assert "Traceback" not in server.log.read_text()


def answered(browser: httpx2.Client, server: Server) -> int:
    """The answered requests that the overview shows."""
    [number] = re.findall(r"<dt>Answered</dt><dd>([\d,]+)</dd>", browser.get(f"{server.admin}/console/").text)
    return int(number.replace(",", ""))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_shows_the_requests_of_all_its_processes(tmp_path: Path, workers: int) -> None:
    store = tmp_path / "store.db"
    redis = {"PETSTORE_REDIS_URL": shared_redis().empty()} if workers > 1 else {}
    with serving(store, "--workers", str(workers), **redis) as server, signed_in(server, store) as browser:
        key, _ = new_key(store, plan=UNLIMITED)
        before = answered(browser, server)
        for _ in range(8):  # each over a connection of its own, so that both workers get some
            with server.client(key) as client:
                assert 200 == client.get("/v1/store/orders").status_code
        assert before + 8 == answered(browser, server)
        assert "acme" in browser.get(f"{server.admin}/console/").text  # the account is the closest to its limit
        assert "Sessions ended: 1." in petstore(store, "console", "--end-sessions").stdout
        assert 401 == browser.get(f"{server.admin}/console/").status_code


@pytest.mark.settings(PETSTORE_CONSOLE="off")
async def test_a_server_without_a_console_has_no_such_path(service: Service) -> None:
    transport = httpx2.ASGITransport(app=service.application.admin)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as admin:
        for path in ("/console", "/console/", "/console/sign-in", "/console/static/console.css"):
            assert 404 == (await admin.get(path)).status_code
        assert 200 == (await admin.get("/readyz")).status_code


def begin_import(browser: httpx2.Client, server: Server, content: str) -> str:
    """Upload a file of orders, wait until it was checked, and begin to import it; the address of its page."""
    form = f"{server.admin}/console/imports/new"
    file = {"file": ("orders.jsonl", content.encode())}
    address = str(browser.post(form, data=form_token(browser, form), files=file).url)
    within(PATIENCE, lambda: "What importing it would do" in browser.get(address).text)
    browser.post(f"{address}/import", data=form_token(browser, address))
    return address


def form_token(browser: httpx2.Client, address: str) -> dict[str, str]:
    """The field that every form of a page has."""
    return dict(re.findall(r'name="(form_token)" value="([^"]+)"', browser.get(address).text))


def test_a_server_imports_an_uploaded_file_and_when_it_stops_ends_its_import_and_deletes_the_upload(
    tmp_path: Path,
) -> None:
    store, temporary = tmp_path / "store.db", tmp_path / "tmp"
    temporary.mkdir()
    settings = {"PETSTORE_WORKERS": "2", "PETSTORE_REDIS_URL": shared_redis().empty(), "TMPDIR": str(temporary)}
    with serving(store, **settings) as server, signed_in(server, store) as browser:
        small, large = ("".join(f'{{"id": {number}}}\n' for number in range(1, last)) for last in (3, 30_001))
        address = begin_import(browser, server, small)
        within(PATIENCE, lambda: "The audit log has it as" in browser.get(address).text)
        assert {1: "pending", 2: "pending"} == statuses(store)
        begin_import(browser, server, large)
    assert [] == list(temporary.iterdir())
