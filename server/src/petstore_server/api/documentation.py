"""The contracts, and the page that explains them: served outside of the API, without a key (D1, D18).

The page is Swagger UI from the installed package, in a frame of our own; nothing on it comes from another host.
"""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from isal import igzip

from petstore_server.api.contracts import CONTRACTS, contract_json, contract_yaml
from petstore_server.api.errors import MethodNotAllowed, RouteNotFound
from petstore_server.api.responses import accepts_gzip, content, lines, matches
from petstore_server.server.response import Response
from petstore_server.settings import Settings

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # Swagger UI's icons are in its style sheet
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_PROTECTION = lines(
    ("content-security-policy", _POLICY), ("referrer-policy", "no-referrer"), ("x-content-type-options", "nosniff")
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


class _Source(NamedTuple):
    """Where a document comes from: its content, its type, and its Cache-Control."""

    read: Callable[[], bytes]
    content_type: str
    caching: str


class Documents:
    """The documents: each in its plain form and, where that is shorter, as gzip.

    Each is prepared when it is first asked for, so that processes start sooner.
    """

    def __init__(self, settings: Settings) -> None:
        page, swagger = files("petstore_server.api") / "page", _swagger_files()
        html = "text/html; charset=utf-8"
        sources: dict[tuple[str, ...], _Source] = {
            ("",): _Source((page / "root.html").read_bytes, html, _REVALIDATE),
            ("docs",): _Source((page / "index.html").read_bytes, html, _REVALIDATE),
        }
        for version, name in CONTRACTS.items():
            as_json = partial(contract_json, settings, version)
            sources[f"{name}.json",] = _Source(as_json, "application/json", _REVALIDATE)
            text = contract_yaml(settings, version).encode  # raises at the start if a setting cannot be applied
            sources[f"{name}.yaml",] = _Source(text, "application/yaml", _REVALIDATE)
        for name, content_type in _OWN_FILES.items():
            sources["docs", name] = _Source((page / name).read_bytes, content_type, _REVALIDATE)
        for name, content_type in _SWAGGER_FILES.items():
            sources["docs", name] = _Source((swagger / name).read_bytes, content_type, _AN_HOUR)
        self._sources = sources
        self._documents: dict[tuple[str, ...], _Document] = {}

    @property
    def paths(self) -> list[str]:
        """The paths of the documents."""
        return ["/" + "/".join(segments) for segments in self._sources]

    def response(self, segments: list[str], method: str, headers: Mapping[bytes, bytes]) -> Response:
        """The document under these path segments, or 304. Raises RouteNotFound, MethodNotAllowed."""
        name = tuple(segments)
        source = self._sources.get(name)
        if source is None:
            raise RouteNotFound
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed("GET, HEAD")
        document = self._documents.get(name)
        if document is None:
            document = self._documents[name] = _Document(*source)
        return document.response(headers)


class _Document:
    """One document in its plain form and as gzip. `caching` is its Cache-Control."""

    def __init__(self, read: Callable[[], bytes], content_type: str, caching: str) -> None:
        body = read()
        zipped = igzip.compress(body, _GZIP_LEVEL, mtime=0)
        self._zip = len(zipped) < len(body)
        name = sha256(body).hexdigest()[:32]
        self._plain = _Form(f'"{name}"', body, content_type, caching, self._zip, "")
        self._zipped = _Form(f'"{name}-gzip"', zipped, content_type, caching, self._zip, "gzip")

    def response(self, request_headers: Mapping[bytes, bytes]) -> Response:
        """The document in the form that the request accepts; 304 if the client has it already."""
        zipped = self._zip and accepts_gzip(request_headers.get(b"accept-encoding"))
        form = self._zipped if zipped else self._plain
        return form.unchanged if matches(request_headers.get(b"if-none-match"), form.etag) else form.whole


class _Form:
    """One form of a document, as the two responses it can have."""

    def __init__(self, etag: str, body: bytes, content_type: str, caching: str, varies: bool, coding: str) -> None:
        self.etag = etag.encode()
        headers = lines(("etag", etag), ("cache-control", caching)) + _PROTECTION
        if varies:
            headers += lines(("vary", "Accept-Encoding"))
        self.unchanged = Response(304, headers)
        if coding:
            headers += lines(("content-encoding", coding))
        self.whole = content(body, content_type, headers)


def _swagger_files() -> Path:
    """The static files in the installed package, which is not imported: its code is for other frameworks."""
    found = find_spec("swagger_ui")
    if found is None or found.origin is None:
        raise FileNotFoundError("The package swagger-ui-py is not installed; install petstore-server's dependencies.")
    return Path(found.origin).parent / "static"
