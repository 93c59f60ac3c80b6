"""The documents outside /v1: the contract and its page, their caching and security headers."""

import gzip
import json
import re
from datetime import datetime
from html.parser import HTMLParser
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from urllib.parse import urldefrag, urljoin
from uuid import NAMESPACE_URL, UUID, uuid5
from xml.etree import ElementTree as ET

import pytest

from petstore_server.api.contracts import load_contract
from petstore_server.api.documentation import Documents, changelog_feed
from petstore_server.api.errors import MethodNotAllowed, RouteNotFound
from petstore_server.server.messages import Response
from petstore_server.settings import read_settings
from testing.documents import parse_yaml

PATHS = [
    *("/", "/docs", "/docs/guide", "/docs/shop", "/docs/webhooks", "/docs/client", "/docs/generated"),
    *("/docs/versions", "/docs/changelog", "/docs/page.css"),
    *("/docs/page.js", "/docs/guide.js", "/docs/favicon-32x32.png", "/docs/swagger-ui-bundle.js"),
    *("/docs/swagger-ui-bundle.js.LICENSE.txt", "/docs/swagger-ui.css", "/docs/changelog.atom"),
    *("/openapi.json", "/openapi.yaml", "/openapi-v2.json", "/openapi-v2.yaml"),
]
GZIP = {b"accept-encoding": b"gzip, deflate, br"}


@pytest.fixture(scope="module")
def documents() -> Documents:
    return Documents(read_settings({"PETSTORE_BASE_URL": "https://api.example/v1"}))


def get(documents: Documents, path: str, headers: dict[bytes, bytes] | None = None) -> Response:
    return documents.response(path.split("/")[1:], "GET", headers or {})


def header_lines(response: Response) -> dict[bytes, bytes]:
    """The headers of a response, by name in lower case."""
    pairs = [line.partition(b": ") for line in response.headers.split(b"\r\n")[:-1]]
    assert len({name for name, _, _ in pairs}) == len(pairs)
    return {name.lower(): value for name, _, value in pairs}


def body(response: Response) -> bytes:
    joined = b"".join(response.chunks)
    assert len(joined) == response.length
    return joined


def test_every_document_has_a_strong_etag_and_honours_if_none_match(documents: Documents) -> None:
    names = set()
    for path in PATHS:
        for asked in ({}, GZIP):
            response = get(documents, path, asked)
            etag = header_lines(response)[b"etag"]
            assert re.fullmatch(rb'"[!#-~]+"', etag)
            names.add(etag)
            again = get(documents, path, {**asked, b"if-none-match": b'"other", ' + etag})
            assert (304, b"") == (again.status, b"".join(again.chunks))
            assert header_lines(again)[b"etag"] == etag
    uncompressed = 1  # the image, which is already compressed
    assert len(names) == 2 * len(PATHS) - uncompressed


def test_gzip_is_sent_if_accepted_and_has_the_same_content(documents: Documents) -> None:
    path = "/docs/swagger-ui-bundle.js"
    plain, zipped = get(documents, path), get(documents, path, GZIP)
    assert b"gzip" == header_lines(zipped)[b"content-encoding"]
    assert b"content-encoding" not in header_lines(plain)
    assert header_lines(plain)[b"vary"] == header_lines(zipped)[b"vary"] == b"Accept-Encoding"
    assert gzip.decompress(body(zipped)) == body(plain)
    assert zipped.length < plain.length / 3


def test_every_document_has_security_and_caching_headers(documents: Documents) -> None:
    for path in PATHS:
        headers = header_lines(get(documents, path))
        assert b"nosniff" == headers[b"x-content-type-options"]
        assert b"no-referrer" == headers[b"referrer-policy"]
        assert headers[b"cache-control"] in (b"no-cache", b"public, max-age=3600")
        policy = headers[b"content-security-policy"].decode().split("; ")
        assert ["default-src 'none'", "script-src 'self'"] == policy[:2]
        assert "frame-ancestors 'none'" in policy
        assert not re.search(r"unsafe|https?:|\*", headers[b"content-security-policy"].decode())


def test_the_notices_that_swagger_ui_names_are_served_and_are_those_of_its_version(documents: Documents) -> None:
    """For another version, copy the files of `licenses/swagger-ui` from the package swagger-ui-dist of npm."""
    package = find_spec("flask_swagger_ui")
    assert package
    assert package.origin
    assert "v5.34.0" == Path(package.origin).with_name("dist").joinpath("VERSION").read_text().strip()
    [named] = re.findall(rb"please see (\S+) \*/", body(get(documents, "/docs/swagger-ui-bundle.js")))
    notices = get(documents, f"/docs/{named.decode()}")
    assert b"text/plain; charset=utf-8" == header_lines(notices)[b"content-type"]
    assert body(notices).count(b"@license") > 3


class Links(HTMLParser):
    """Collects the targets of a page's scripts, styles and links, and any inline script or style."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.inline: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if name in ("href", "src") and value:
                self.targets.append(value)
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
        if tag == "style" or (tag == "script" and "src" not in dict(attrs)):
            self.inline.append(tag)


@pytest.mark.parametrize(
    "path",
    [path for path in PATHS if path == "/" or ("." not in path and path.startswith("/docs"))],
)
def test_pages_load_and_link_only_files_of_this_server(documents: Documents, path: str) -> None:
    page = _page(documents, path)
    targets = [urldefrag(target) for target in page.targets if not target.startswith("mailto:")]
    assert len(targets) > 5
    for target, anchor in targets:
        there = urljoin(path, target.partition("?")[0])
        assert 200 == get(documents, there).status
        assert not anchor or anchor.startswith("operations-") or anchor in _page(documents, there).anchors
    assert [] == page.inline


def _page(documents: Documents, path: str) -> "Links":
    links = Links()
    links.feed(body(get(documents, path)).decode())
    return links


def test_the_guide_shows_the_addresses_and_the_contact_of_this_deployment() -> None:
    text = _guide(
        PETSTORE_BASE_URL="https://api.example/v1",
        PETSTORE_STAGING_BASE_URL="https://staging.example/v1",
        PETSTORE_CONTACT="partners@shop.example",
        PETSTORE_PETS_SUNSET="2028-02-01",
    )
    for shown in (
        "<td><code>https://api.example/v1</code></td>",
        "<td><code>https://staging.example/v1</code></td>",
        '<a href="mailto:partners@shop.example">partners@shop.example</a>',
        "<td><code>2028-02-01T00:00:00Z</code></td>",
        "export API=https://api.example/v1 ",
    ):
        assert shown in text
    assert "127.0.0.1" not in text


def test_staging_shows_its_own_address_in_examples_the_feed_and_the_contracts() -> None:
    both = {"BASE_URL": "https://api.example/v1", "STAGING_BASE_URL": "https://staging.example/v1"}
    environ = {f"PETSTORE_{name}": text for name, text in both.items()}
    settings = read_settings(environ | {"PETSTORE_ENVIRONMENT": "staging"})
    documents = Documents(settings)
    text = body(get(documents, "/docs/guide")).decode()
    assert "export API=https://staging.example/v1 " in text
    assert 1 == text.count("https://api.example/v1")  # in the table
    feed = body(get(documents, "/docs/changelog.atom")).decode()
    assert "https://staging.example/docs" in feed
    assert "api.example" not in feed
    for version in ("v1", "v2"):
        assert "https://staging.example/docs/guide" == load_contract(settings, version)["externalDocs"]["url"]


def test_the_guide_without_settings_has_the_address_of_make_run_and_no_empty_rows() -> None:
    text = _guide()
    assert "export API=http://127.0.0.1:8080/v1 " in text
    assert "Contact" not in text
    assert "Base address of staging" not in text
    assert "<!-- " not in text


def _guide(**environ: str) -> str:
    return body(get(Documents(read_settings(environ)), "/docs/guide")).decode()


@pytest.mark.parametrize(("name", "first"), [("guide", "start"), ("shop", "the-operations"), ("client", "quick-start")])
def test_a_page_has_one_list_of_contents(documents: Documents, name: str, first: str) -> None:
    page = body(get(documents, f"/docs/{name}")).decode()
    assert 1 == page.count(f'href="#{first}"')


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_pages_of_the_contracts_lead_to_what_may_change(documents: Documents, path: str) -> None:
    assert 'href="docs/versions"' in body(get(documents, path)).decode()


ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.mark.parametrize("base", ["", "https://api.example/v1"])
def test_the_changelog_is_also_a_valid_atom_feed_with_an_entry_for_each_release(base: str) -> None:
    """RFC 4287 section 4.1: what a feed and an entry must have, each once."""
    documents = Documents(read_settings({"PETSTORE_BASE_URL": base}))
    response = get(documents, "/docs/changelog.atom")
    assert b"application/atom+xml; charset=utf-8" == header_lines(response)[b"content-type"]
    feed = ET.fromstring(body(response))
    assert feed.tag == f"{ATOM}feed"
    assert feed.get("{http://www.w3.org/XML/1998/namespace}base") == ("https://api.example/docs/" if base else None)
    entries = feed.findall(f"{ATOM}entry")
    html = body(get(documents, "/docs/changelog")).decode()
    assert len(re.findall(r"<h2 .*\d{4}-\d\d-\d\d</h2>", html)) == len(entries) > 0
    for part in (feed, *entries):
        assert [1, 1, 1] == [len(part.findall(f"{ATOM}{name}")) for name in ("id", "title", "updated")]
        assert 5 == UUID(str(part.findtext(f"{ATOM}id"))).version
        assert datetime.fromisoformat(str(part.findtext(f"{ATOM}updated"))).tzinfo
        links = [link.attrib for link in part.findall(f"{ATOM}link") if link.get("rel") == "alternate"]
        assert ["text/html"] == [link["type"] for link in links]
        there, anchor = urldefrag(urljoin("/docs/changelog.atom", links[0]["href"]))
        assert "/docs/changelog" == there
        assert not anchor or f'id="{anchor}"' in html
    assert feed.findtext(f"{ATOM}author/{ATOM}name")
    assert len({entry.findtext(f"{ATOM}id") for entry in [feed, *entries]}) == 1 + len(entries)
    assert max(str(entry.findtext(f"{ATOM}updated")) for entry in entries) == feed.findtext(f"{ATOM}updated")
    for entry in entries:
        content = entry.find(f"{ATOM}content")
        assert content is not None
        assert "html" == content.get("type")
        assert str(content.text).strip() in html
    assert 'rel="alternate" type="application/atom+xml"' in html


def test_an_announced_change_is_an_entry_of_the_feed_from_the_day_of_its_announcement() -> None:
    changelog = """# Changelog

## Unreleased

- Not dated.

## Announced on 2026-12-15, for 2027-01-14 at the earliest

- `limit` gets another default.

## 1.1.0 and 2.0.0-beta.2 - 2026-12-10

- New.
"""
    feed = ET.fromstring(changelog_feed(changelog, "https://api.example/v1"))
    announced, released = feed.findall(f"{ATOM}entry")
    assert "Announced on 2026-12-15, for 2027-01-14 at the earliest" == announced.findtext(f"{ATOM}title")
    assert "2026-12-15T00:00:00Z" == announced.findtext(f"{ATOM}updated") == feed.findtext(f"{ATOM}updated")
    expected = "<ul>\n<li><code>limit</code> gets another default.</li>\n</ul>"
    assert expected == str(announced.findtext(f"{ATOM}content")).strip()
    [link] = announced.findall(f"{ATOM}link")
    assert "changelog#announced-on-2026-12-15-for-2027-01-14-at-the-earliest" == link.get("href")
    assert "1.1.0 and 2.0.0-beta.2" == released.findtext(f"{ATOM}title")
    assert "2026-12-10T00:00:00Z" == released.findtext(f"{ATOM}updated")
    assert announced.findtext(f"{ATOM}id") != released.findtext(f"{ATOM}id")


def test_the_entry_of_a_release_keeps_its_identifier() -> None:
    feed = ET.fromstring(body(get(Documents(read_settings({})), "/docs/changelog.atom")))
    found = {entry.findtext(f"{ATOM}title"): entry.findtext(f"{ATOM}id") for entry in feed.findall(f"{ATOM}entry")}
    assert f"urn:uuid:{uuid5(NAMESPACE_URL, '1.0.0 and 2.0.0-beta.1')}" == found["1.0.0 and 2.0.0-beta.1"]


@pytest.mark.parametrize(("kind", "contact"), [("email", "a@shop.example"), ("url", "https://shop.example/help")])
def test_the_contracts_are_json_and_yaml_and_name_the_contact_and_link_to_the_guide(kind: str, contact: str) -> None:
    documents = Documents(read_settings({"PETSTORE_BASE_URL": "https://api.example/v1", "PETSTORE_CONTACT": contact}))
    for name, ending in product(("/openapi.", "/openapi-v2."), ("json", "yaml")):
        response = get(documents, name + ending)
        assert f"application/{ending}".encode() == header_lines(response)[b"content-type"]
        contract = json.loads(body(response)) if ending == "json" else parse_yaml(body(response))
        assert contract["info"]["contact"] == {kind: contact}
        assert "https://api.example/docs/guide" == contract["externalDocs"]["url"]


@pytest.mark.parametrize(
    "path", ["", "//", "/docs//", "/docs/index.html", "/docs/../docs", "/docs/../", "/openapi", "/v2/store/orders"]
)
def test_other_paths_are_not_found(documents: Documents, path: str) -> None:
    with pytest.raises(RouteNotFound):
        get(documents, path)


@pytest.mark.parametrize("path", ["/docs", "/docs/guide", "/openapi.yaml"])
def test_a_slash_behind_a_document_leads_to_the_document_also_below_a_path_prefix(
    documents: Documents, path: str
) -> None:
    response = get(documents, f"{path}/")
    assert (308, b"0") == (response.status, header_lines(response)[b"content-length"])
    base = "https://store.example/api"
    assert base + path == urljoin(f"{base}{path}/", header_lines(response)[b"location"].decode())
    versioned = documents.response([*path.split("/")[1:], ""], "GET", {}, b"api=v2")
    assert f"{base}{path}?api=v2" == urljoin(f"{base}{path}/", header_lines(versioned)[b"location"].decode())


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS", "TRACE"])
def test_documents_allow_only_get_and_head(documents: Documents, method: str) -> None:
    with pytest.raises(MethodNotAllowed) as raised:
        documents.response(["docs"], method, {})
    assert ("GET, HEAD",) == raised.value.values
    assert 200 == documents.response(["docs"], "HEAD", {}).status
