"""What is served outside of the API, without a key: the contract, the page that explains it, and a pointer to it
(D1, D18).

The page is Swagger UI from the installed package, in a frame of our own; nothing on it comes from another host.
"""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from isal import igzip

from petstore_server.http.contract import CONTRACTS, contract_json, contract_yaml
from petstore_server.http.errors import MethodNotAllowed, RouteNotFound
from petstore_server.http.responses import Response, accepts_gzip, content, lines, matches
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
_GZIP_LEVEL = 3  # of isal: a fifth of the time of zlib, so that processes start sooner, for a tenth more bytes
_AN_HOUR = "public, max-age=3600"

_OWN_FILES = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
_SWAGGER_FILES = {
    "favicon-32x32.png": "image/png",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}


class Documents:
    """The documents, prepared once: each in its plain form and, where that is shorter, as gzip."""

    def __init__(self, settings: Settings) -> None:
        page = files("petstore_server.http") / "page"
        html = "text/html; charset=utf-8"
        documents: dict[tuple[str, ...], _Document] = {
            ("",): _Document((page / "root.html").read_bytes(), html, _REVALIDATE),
            ("docs",): _Document((page / "index.html").read_bytes(), html, _REVALIDATE),
        }
        for version, name in CONTRACTS.items():
            as_json, as_yaml = contract_json(settings, version), contract_yaml(settings, version).encode()
            documents[f"{name}.json",] = _Document(as_json, "application/json", _REVALIDATE)
            documents[f"{name}.yaml",] = _Document(as_yaml, "application/yaml", _REVALIDATE)
        for name, content_type in _OWN_FILES.items():
            documents["docs", name] = _Document((page / name).read_bytes(), content_type, _REVALIDATE)
        for name, content_type in _SWAGGER_FILES.items():
            documents["docs", name] = _Document((_swagger_files() / name).read_bytes(), content_type, _AN_HOUR)
        self._documents = documents

    @property
    def paths(self) -> list[str]:
        """The paths of the documents."""
        return ["/" + "/".join(segments) for segments in self._documents]

    def response(self, segments: list[str], method: str, headers: Mapping[bytes, bytes]) -> Response:
        """The document under these path segments, or 304. Raises RouteNotFound, MethodNotAllowed."""
        document = self._documents.get(tuple(segments))
        if document is None:
            raise RouteNotFound
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed("GET, HEAD")
        return document.response(headers)


class _Document:
    """One document in its plain form and as gzip. `caching` is its Cache-Control."""

    def __init__(self, body: bytes, content_type: str, caching: str) -> None:
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
