"""The contracts, their page, and the pages for partners: served outside of the API, without a key (D1, D18).

The page of the contracts is Swagger UI from the installed package, in a frame of our own. The other pages are the
Markdown of `guide` as HTML, with the addresses and dates of this deployment. Nothing on any page comes from another
host.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from petstore_server.api.contracts import CONTRACTS, contract_json, contract_yaml
from petstore_server.api.errors import MethodNotAllowed, RouteNotFound
from petstore_server.api.representation import Headers, Representation, accepts_gzip, gzip, represent
from petstore_server.api.routes import OWN_CONTRACT
from petstore_server.domain.timestamps import format_timestamp
from petstore_server.server.messages import Response
from petstore_server.settings import Settings

MAX_DOCUMENT_REQUESTS = 600  # per minute and address outside of the API; the documentation page takes about ten
MAX_DOCUMENT_ADDRESSES = 10_000  # addresses whose requests are counted on their own

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; "  # Swagger UI's icons are in its style sheet
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PROTECTION = (
    f"Content-Security-Policy: {_POLICY}\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
)
_REVALIDATE = "no-cache"  # changes with a deployment, so browsers ask each time; mostly the response is 304
_GZIP_LEVEL = 3  # of isal: a fifth of the time of zlib, for a tenth more bytes
_AN_HOUR = "public, max-age=3600"
_HTML = "text/html; charset=utf-8"
_TYPES = {
    ".atom": "application/atom+xml; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
    ".yaml": "application/yaml",
}
_OWN_FILES = ("page.css", "page.js", "guide.js")
_SWAGGER_FILES = (
    "favicon-32x32.png",
    "swagger-ui-bundle.js",
    "swagger-ui-bundle.js.LICENSE.txt",  # which the bundle names
    "swagger-ui.css",
)
_MIN_CONTENTS = 4  # headings of a page that has a list of contents
_GUIDE_PAGES = ("guide", "shop", "webhooks", "client", "generated", "versions", "changelog")
"""The Markdown files and, under `/docs`, the pages."""

_DATED = re.compile(  # a release, `1.0.0 - 2026-11-27`, or `Announced on 2026-12-15, for 2027-01-14 at the earliest`
    r"^## (?P<heading>[^\n]*?(?P<date>\d{4}-\d\d-\d\d)[^\n]*)\n(?P<text>.+?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
_LIST_OF_CONTENTS = re.compile(r"^(?:- \[.+\]\(#.+\)\n)+", re.MULTILINE)  # for readers of the Markdown file
_EXAMPLE_ADDRESS = "http://127.0.0.1:8080/v"  # of both versions, without the number


class Documents:
    """The documents: each in its plain form and, where that is shorter, as gzip.

    Each is prepared when it is first asked for, so that processes start sooner.
    """

    def __init__(self, settings: Settings) -> None:
        page = files("petstore_server.api") / "page"
        self._documents: dict[tuple[str, ...], Callable[[], tuple[Representation, Representation]]] = {}

        def add(*segments: str, read: Callable[[], bytes], caching: str = _REVALIDATE) -> None:
            content_type = _TYPES.get(Path(segments[-1]).suffix, _HTML)
            self._documents[segments] = cache(lambda: _prepare(read(), content_type, caching))

        add("", read=(page / "root.html").read_bytes)
        add("docs", read=(page / "index.html").read_bytes)
        for version, name in CONTRACTS.items():
            add(f"{name}.json", read=partial(contract_json, settings, version))
            add(f"{name}.yaml", read=partial(contract_yaml, settings, version))
            for below in OWN_CONTRACT:
                self._documents[version, below] = self._documents[below.replace("openapi", name),]
        for name in _GUIDE_PAGES:
            add("docs", name, read=partial(_guide_page, settings, name))
        add("docs", "changelog.atom", read=lambda: changelog_feed(_guide_text("changelog"), settings.own_base_url))
        for name in _OWN_FILES:
            add("docs", name, read=(page / name).read_bytes)
        for name in _SWAGGER_FILES:
            add("docs", name, read=(page / "swagger" / name).read_bytes, caching=_AN_HOUR)

    def response(self, segments: Sequence[str], method: str, headers: Headers, query: bytes = b"") -> Response:
        """The document under these path segments, or 304; 308 if a slash follows it, as people type it.

        Raises RouteNotFound, MethodNotAllowed.
        """
        slash = len(segments) > 1 and not segments[-1]
        prepared = self._documents.get(tuple(segments[:-1] if slash else segments))
        if prepared is None or (slash and not segments[0]):
            raise RouteNotFound
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed("GET, HEAD")
        if slash:
            target = segments[-2].encode() + (b"?" + query if query else b"")  # as in docs?api=v2
            return Response(308, b"Location: ../%s\r\nContent-Length: 0\r\n" % target)
        plain, zipped = prepared()
        return (zipped if accepts_gzip(headers) else plain).answer(headers)


def _prepare(body: bytes, content_type: str, caching: str) -> tuple[Representation, Representation]:
    """The plain form, and what a client gets that accepts gzip: the plain form too where that is as short."""
    digest = sha256(body).hexdigest()[:32]
    headers = f"Cache-Control: {caching}\r\n{_PROTECTION}".encode()
    compressed = gzip(body, _GZIP_LEVEL)
    if len(compressed) >= len(body):
        return (represent(digest, (body,), content_type, headers),) * 2
    headers += b"Vary: Accept-Encoding\r\n"
    zipped = represent(digest, (compressed,), content_type, headers, zipped=True)
    return represent(digest, (body,), content_type, headers), zipped


def _guide_page(settings: Settings, name: str) -> bytes:
    """A page of the guide as HTML."""
    text = _guide_text(name).replace("<!-- addresses -->", _addresses(settings))
    if settings.own_base_url:  # a key of staging must not be sent to production
        text = text.replace(_EXAMPLE_ADDRESS, settings.own_base_url.removesuffix("1"))
    text = _LIST_OF_CONTENTS.sub("", text, 1)
    frame = (files("petstore_server.api") / "page" / "guide.html").read_text("utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    return frame.replace("{title}", escape(title)).replace("{text}", _html(text)).encode()


def changelog_feed(text: str, base_url: str | None) -> bytes:
    """A changelog as an Atom feed (RFC 4287): an entry for each heading with a date, which is the first one in it."""
    from jinja2 import Template  # when it is needed, as markdown_it

    entries = [found.groupdict() for found in _DATED.finditer(text)]
    for entry in entries:
        entry["title"] = entry["heading"].removesuffix(f" - {entry['date']}")
        entry["id"] = str(uuid5(NAMESPACE_URL, entry["title"]))
        entry["anchor"] = _anchor(entry["heading"])
    template = Template((files("petstore_server.api") / "page" / "changelog.atom").read_text("utf-8"), autoescape=True)
    docs = base_url and f"{base_url.removesuffix('/v1')}/docs"
    return str(template.render(entries=entries, docs=docs, html=_html)).encode()


def _guide_text(name: str) -> str:
    return (files("petstore_server.api") / "guide" / f"{name}.md").read_text("utf-8")


def _addresses(settings: Settings) -> str:
    """A table of what a partner of this deployment needs to know."""
    rows = {
        "Base address": settings.base_url and f"`{settings.base_url}`",
        "Base address of staging": settings.staging_base_url and f"`{settings.staging_base_url}`",
        "Contact": settings.contact and f"<{settings.contact}>",
        "`GET /pets/{petId}` is withdrawn": f"`{format_timestamp(settings.pets_sunset)}`",
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items() if value]
    return "\n".join(["| This service | |", "|---|---|", *lines])


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _html(text: str) -> str:
    """Markdown as HTML: with a list of contents, anchors at headings, and links between the pages that lead there."""
    from markdown_it import MarkdownIt  # when it is needed: a server without requests for the guide starts without it

    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(re.sub(r"<!--.*?-->\n?", "", text))
    contents = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = _anchor(inline.content)
            opening.attrSet("id", anchor)
            if opening.tag == "h2":
                contents.append(f'<li><a href="#{anchor}">{parser.renderInline(inline.content)}</a></li>')
        for link in inline.children or ():
            if link.type == "link_open":
                link.attrSet("href", re.sub(r"^(\w+)\.md\b", r"\1", str(link.attrs["href"])))
    html = str(parser.renderer.render(tokens, parser.options, {}))
    nav = f'</h1>\n<nav aria-label="Contents"><ul>{"".join(contents)}</ul></nav>'
    return html.replace("</h1>", nav, 1) if len(contents) >= _MIN_CONTENTS else html
