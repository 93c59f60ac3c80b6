"""The contracts, their page, and the guide: served outside of the API, without a key (D1, D18).

The page of the contracts is Swagger UI from the installed package, in a frame of our own; nothing on any page comes
from another host.
"""

from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from petstore_server.api.contracts import CONTRACTS, contract_json, contract_yaml
from petstore_server.api.errors import MethodNotAllowed, RouteNotFound
from petstore_server.api.guide import PAGES, guide_page
from petstore_server.api.representation import Headers, Representation, accepts_gzip, gzip, represent
from petstore_server.server.messages import Response
from petstore_server.settings import Settings

DOCUMENT_LIMIT = 600
"""Requests per minute and address outside of the API. The documentation page with its parts takes about ten."""

MOST_READERS = 10_000
"""Addresses whose requests are counted on their own."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; "  # Swagger UI's icons are in its style sheet
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PROTECTION = (
    f"content-security-policy: {_POLICY}\r\nreferrer-policy: no-referrer\r\nx-content-type-options: nosniff\r\n"
)
_REVALIDATE = "no-cache"  # changes with a deployment, so browsers ask each time; mostly the response is 304
_GZIP_LEVEL = 3  # of isal: a fifth of the time of zlib, for a tenth more bytes
_AN_HOUR = "public, max-age=3600"

_OWN_FILES = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
_SWAGGER_FILES = {
    "favicon-32x32.png": "image/png",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}


class Documents:
    """The documents: each in its plain form and, where that is shorter, as gzip.

    Each is prepared when it is first asked for, so that processes start sooner.
    """

    def __init__(self, settings: Settings) -> None:
        page, swagger = files("petstore_server.api") / "page", _swagger_files()
        html = "text/html; charset=utf-8"
        self._documents: dict[tuple[str, ...], Callable[[bool], Representation]] = {}

        def add(*segments: str, read: Callable[[], bytes], content_type: str, caching: str = _REVALIDATE) -> None:
            once = cache(read)
            self._documents[segments] = cache(lambda zipped: _prepare(once(), content_type, caching, zipped))

        add("", read=(page / "root.html").read_bytes, content_type=html)
        add("docs", read=(page / "index.html").read_bytes, content_type=html)
        for version, name in CONTRACTS.items():
            add(f"{name}.json", read=partial(contract_json, settings, version), content_type="application/json")
            add(f"{name}.yaml", read=partial(contract_yaml, settings, version), content_type="application/yaml")
        for name in PAGES:
            add("docs", name, read=partial(guide_page, settings, name), content_type=html)
        for name, content_type in _OWN_FILES.items():
            add("docs", name, read=(page / name).read_bytes, content_type=content_type)
        for name, content_type in _SWAGGER_FILES.items():
            add("docs", name, read=(swagger / name).read_bytes, content_type=content_type, caching=_AN_HOUR)

    @property
    def paths(self) -> list[str]:
        """The paths of the documents."""
        return ["/" + "/".join(segments) for segments in self._documents]

    def response(self, segments: list[str], method: str, headers: Headers) -> Response:
        """The document under these path segments, or 304. Raises RouteNotFound, MethodNotAllowed."""
        prepared = self._documents.get(tuple(segments))
        if prepared is None:
            raise RouteNotFound
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed("GET, HEAD")
        return prepared(accepts_gzip(headers)).answer(headers)


def _prepare(body: bytes, content_type: str, caching: str, zipped: bool) -> Representation:
    """The representation for a client that accepts gzip if `zipped`; it gets the plain form where that is as short."""
    headers = f"cache-control: {caching}\r\n{_PROTECTION}"
    compressed = gzip(body, _GZIP_LEVEL)
    if len(compressed) < len(body):
        headers += "vary: Accept-Encoding\r\n"
    else:
        zipped = False
    chunk = compressed if zipped else body
    return represent(sha256(body).hexdigest()[:32], (chunk,), content_type, headers.encode(), zipped=zipped)


def _swagger_files() -> Path:
    """The static files in the installed package, which is not imported: its code is for other frameworks."""
    found = find_spec("swagger_ui")
    if found is None or found.origin is None:
        raise FileNotFoundError("The package swagger-ui-py is not installed; install petstore-server's dependencies.")
    return Path(found.origin).parent / "static"
