"""The shipped nginx configuration for the console, before a real service: nginx asks who an operator is.

That program plays the answers of oauth2-proxy on which nginx relies: 202 with the operator's address and groups in
X-Auth-Request-Email and X-Auth-Request-Groups, or 401; and the page for signing in, which returns to the page in
X-Auth-Request-Redirect.
"""

import json
import re
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from testing import served_fake
from testing.console import text_of
from testing.nginx_front import SHIPPED, Front, front
from testing.process import Server, petstore, serving

pytestmark = pytest.mark.system

CONFIGURATION = SHIPPED.with_name("petstore-console.conf")
ELSEWHERE = "127.0.0.2"  # an address of this machine that is not the proxy's
OPERATORS = {
    "ada": ("ada@example.com", "staff,pets-admins"),
    "bob": ("bob@example.com", "staff, pets-ops"),
    "carol": ("carol@example.com", "staff"),
    "dave": ("dave@example.com", "guests"),
    "nameless": ("", "pets-admins"),
}
SETTINGS = {
    "PETSTORE_CONSOLE_USER_HEADER": "X-Forwarded-Email",
    "PETSTORE_CONSOLE_GROUPS_HEADER": "X-Forwarded-Groups",
    "PETSTORE_CONSOLE_PROXIES": "127.0.0.1",
    "PETSTORE_CONSOLE_ROLES": "admin:pets-admins,operator:pets-ops,viewer:staff",
}
FORGED = {"X-Forwarded-Email": "eve@example.com", "X-Forwarded-Groups": "pets-admins"}


class Identity(served_fake.Handler):
    """Says whom a cookie belongs to, as oauth2-proxy does with --set-xauthrequest."""

    def respond(self) -> None:
        empty = ("Content-Length", "0")
        if self.path == "/oauth2/sign_in":
            assert "Content-Length" not in self.headers
            self.send(403, [("X-Returns-To", self.headers["X-Auth-Request-Redirect"]), empty], b"")
            return
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("_oauth2_proxy")
        operator = OPERATORS.get(cookie.value) if cookie else None
        named = zip(("Email", "Groups"), operator or (), strict=False)
        who = [(f"X-Auth-Request-{name}", value) for name, value in named if value]
        self.send(202 if operator else 401, [*who, empty], b"")


class Site(NamedTuple):
    store: Path
    server: Server
    front: Front

    def visiting(self, operator: str | None, **headers: str) -> httpx2.Client:
        """A browser that the identity provider knows as this operator."""
        cookies = {"_oauth2_proxy": operator} if operator else {}
        return self.front.browser(cookies=cookies, headers=headers)


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    store = folder / "store.db"
    with served_fake.serving(Identity) as identity, serving(store, **SETTINGS) as server:
        admin = int(server.admin.rpartition(":")[2])

        def configuration(place: Path, port: int, service_port: int) -> str:
            text = CONFIGURATION.read_text()
            for shipped, here, count in (
                ("listen 443 ssl http2;", f"listen 127.0.0.1:{port} ssl;", 1),
                ("listen [::]:443 ssl http2;", "", 1),
                ("/etc/petstore/tls", str(place), 2),
                ("http://127.0.0.1:4180", f"http://127.0.0.1:{identity}", 3),
                ("http://127.0.0.1:8081", f"http://127.0.0.1:{service_port}", 1),
            ):
                assert count == text.count(shipped), shipped
                text = text.replace(shipped, here)
            return text

        with front(folder / "nginx", admin, configuration) as before:
            yield Site(store, server, before)


@pytest.mark.parametrize("page", ["/console/orders?status=pending&sort=-id", "/console/audit?subject=A%20%26%20B"])
def test_without_a_sign_in_nginx_shows_the_page_for_it_which_returns_to_the_whole_address(
    page: str, site: Site
) -> None:
    with site.visiting(None, **FORGED) as browser:
        responses = browser.get(page), browser.post(page, data={"name": "acme"})
    assert [(403, page)] * 2 == [(each.status_code, each.headers["X-Returns-To"]) for each in responses]


@pytest.mark.parametrize(("operator", "role"), [("ada", "admin"), ("bob", "operator"), ("carol", "viewer")])
@pytest.mark.parametrize("headers", [{}, FORGED], ids=["", "forged"])
def test_the_operator_is_the_one_whom_the_identity_provider_names(
    operator: str, role: str, headers: dict[str, str], site: Site
) -> None:
    with site.visiting(operator, **headers) as browser:
        page = browser.get("/console/")
    assert 200 == page.status_code
    assert f"{operator}@example.com" in page.text
    assert f">{role}</a>" in page.text
    assert "eve@example.com" not in page.text


@pytest.mark.parametrize(
    ("operator", "status", "reason"),
    [("dave", 403, "no group that has a role"), ("nameless", 401, "Sign in to the console")],
)
def test_an_operator_without_a_role_or_a_name_gets_no_page(operator: str, status: int, reason: str, site: Site) -> None:
    with site.visiting(operator, **FORGED) as browser:
        response = browser.get("/console/")
    assert status == response.status_code
    assert reason in text_of(response)


def test_an_action_is_recorded_under_the_verified_name(site: Site) -> None:
    with site.visiting("ada") as browser:
        page = browser.get("/console/accounts")
        [token] = set(re.findall(r'name="form_token" value="([^"]+)"', page.text))
        fields = {"form_token": token, "name": "acme", "plan": "free", "orders": "own"}
        for origin, status in (("https://evil.example", 403), (f"https://localhost:{site.front.port}", 303)):
            made = browser.post("/console/accounts", data=fields, headers={"Origin": origin})
            assert status == made.status_code
        assert "Secure" in made.headers["set-cookie"]
    assert 0 == petstore(site.store, "accounts", "suspend", "acme", "--as", "ada@example.com").returncode
    shown = petstore(site.store, "audit", "--json", "--account", "acme").stdout.splitlines()
    created, suspended = map(json.loads, shown)
    assert ("operator:ada@example.com", True) == (created["actor"], created["verified"])
    assert ("operator:ada@example.com", False) == (suspended["actor"], "verified" in suspended)


def test_a_file_is_imported_through_nginx(site: Site) -> None:
    with site.visiting("bob") as browser:
        [token] = set(re.findall(r'name="form_token" value="([^"]+)"', browser.get("/console/imports/new").text))
        content = b"".join(b'{"id": %d}\n' % number for number in range(1, 100_001))  # more than nginx keeps in memory
        file = {"file": ("orders.jsonl", content)}
        response = browser.post("/console/imports/new", data={"form_token": token}, files=file)
    assert 303 == response.status_code
    assert response.headers["location"].startswith("/console/imports/")


def test_the_headers_of_a_program_that_is_not_the_proxy_are_refused(site: Site) -> None:
    transport = httpx2.HTTPTransport(local_address=ELSEWHERE)
    with httpx2.Client(transport=transport, base_url=site.server.admin) as other:
        response = other.get("/console/", headers={**FORGED, "X-Forwarded-For": "127.0.0.1"})
    assert 403 == response.status_code
    assert f"came from {ELSEWHERE}" in text_of(response)


def test_neither_the_public_port_nor_nginx_has_more_of_the_admin_port(site: Site) -> None:
    with httpx2.Client(base_url=site.server.api) as public:
        assert 404 == public.get("/console/", headers=FORGED).status_code
    with site.visiting("ada") as browser:
        assert [404, 404] == [browser.get(path).status_code for path in ("/metrics", "/readyz")]
