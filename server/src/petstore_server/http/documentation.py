"""What is served outside /v1, without a key: the contract and the page that explains it (D1, D18).

The page is Swagger UI out of the installed package, with a frame of our own; nothing on it comes from another host.
"""

import gzip
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from petstore_server.http.contract import contract_json, contract_yaml
from petstore_server.http.errors import MethodNotAllowed, RouteNotFound
from petstore_server.http.responses import Headers, Response, accepts_gzip, content, matches
from petstore_server.settings import Settings

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # Swagger UI's icons stand in its style sheet
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_PROTECTION = [
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]
_REVALIDATE = b"no-cache"  # changes with a deployment, so ask each time; the answer is 304 as a rule
_AN_HOUR = b"public, max-age=3600"

_OUR_FILES = {"page.css": b"text/css; charset=utf-8", "page.js": b"text/javascript; charset=utf-8"}
_SWAGGER_FILES = {
    "favicon-32x32.png": b"image/png",
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
    "swagger-ui.css": b"text/css; charset=utf-8",
}


class Documents:
    """The documents, prepared once: each in its plain form and, where that is shorter, as gzip."""

    def __init__(self, settings: Settings) -> None:
        page = files("petstore_server.http") / "page"
        documents: dict[tuple[str, ...], _Document] = {
            ("openapi.json",): _Document(contract_json(settings), b"application/json", _REVALIDATE),
            ("openapi.yaml",): _Document(contract_yaml(settings).encode(), b"application/yaml", _REVALIDATE),
            ("docs",): _Document((page / "index.html").read_bytes(), b"text/html; charset=utf-8", _REVALIDATE),
        }
        for name, kind in _OUR_FILES.items():
            documents["docs", name] = _Document((page / name).read_bytes(), kind, _REVALIDATE)
        for name, kind in _SWAGGER_FILES.items():
            documents["docs", name] = _Document((_swagger_files() / name).read_bytes(), kind, _AN_HOUR)
        self._documents = documents

    @property
    def paths(self) -> list[str]:
        """The paths at which there is a document."""
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
    """One document: its bytes, how they may be kept, and their gzip form."""

    def __init__(self, body: bytes, content_type: bytes, caching: bytes) -> None:
        self._type = content_type
        self._caching = caching
        self._plain = body
        self._zipped = gzip.compress(body, mtime=0)
        self._worth_zipping = len(self._zipped) < len(body)
        self._name = sha256(body).hexdigest()[:32].encode()

    def response(self, request_headers: Mapping[bytes, bytes]) -> Response:
        """The document in the form that the request accepts; 304 where the client holds it already."""
        zipped = self._worth_zipping and accepts_gzip(request_headers.get(b"accept-encoding"))
        etag = b'"%s%s"' % (self._name, b"-gzip" if zipped else b"")
        headers: Headers = [(b"etag", etag), (b"cache-control", self._caching), *_PROTECTION]
        if self._worth_zipping:
            headers.append((b"vary", b"Accept-Encoding"))
        if matches(request_headers.get(b"if-none-match"), etag):
            return Response(304, headers)
        if zipped:
            headers.append((b"content-encoding", b"gzip"))
        return content(self._zipped if zipped else self._plain, self._type, headers)


def _swagger_files() -> Path:
    """Where the installed package keeps them. It is found without being imported: its code is for other frameworks."""
    found = find_spec("swagger_ui")
    if found is None or found.origin is None:
        raise FileNotFoundError("The package swagger-ui-py is not installed; install petstore-server with its parts.")
    return Path(found.origin).parent / "static"
