"""The contracts, their page, and the guide: served outside of the API, without a key (D1, D18).

The page of the contracts is Swagger UI from the installed package, in a frame of our own; nothing on any page comes
from another host.
"""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from petstore_server.api.contracts import CONTRACTS, contract_json, contract_yaml
from petstore_server.api.errors import MethodNotAllowed, RouteNotFound
from petstore_server.api.guide import PAGES, guide_page
from petstore_server.api.representation import Headers, Representation, accepts_gzip, gzip, header_lines, represent
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
_PROTECTION = header_lines(
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
            as_yaml = partial(_contract_yaml, settings, version)
            sources[f"{name}.yaml",] = _Source(as_yaml, "application/yaml", _REVALIDATE)
        for name in PAGES:
            sources["docs", name] = _Source(partial(guide_page, settings, name), html, _REVALIDATE)
        for name, content_type in _OWN_FILES.items():
            sources["docs", name] = _Source((page / name).read_bytes, content_type, _REVALIDATE)
        for name, content_type in _SWAGGER_FILES.items():
            sources["docs", name] = _Source((swagger / name).read_bytes, content_type, _AN_HOUR)
        self._sources = sources
        self._prepared: dict[tuple[str, ...], _Document] = {}

    @property
    def paths(self) -> list[str]:
        """The paths of the documents."""
        return ["/" + "/".join(segments) for segments in self._sources]

    def response(self, segments: list[str], method: str, headers: Headers) -> Response:
        """The document under these path segments, or 304. Raises RouteNotFound, MethodNotAllowed."""
        name = tuple(segments)
        source = self._sources.get(name)
        if source is None:
            raise RouteNotFound
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed("GET, HEAD")
        document = self._prepared.get(name)
        if document is None:
            document = self._prepared[name] = _prepare(source)
        return (document.zipped if document.zipped and accepts_gzip(headers) else document.plain).answer(headers)


class _Document(NamedTuple):
    """A document in its plain form and, if that is shorter, as gzip."""

    plain: Representation
    zipped: Representation | None


def _prepare(source: _Source) -> _Document:
    body = source.read()
    compressed = gzip(body, _GZIP_LEVEL)
    digest = sha256(body).hexdigest()[:32]
    headers = header_lines(("cache-control", source.caching)) + _PROTECTION
    if len(compressed) >= len(body):
        return _Document(represent(digest, (body,), source.content_type, headers), None)
    headers += b"vary: Accept-Encoding\r\n"
    return _Document(
        represent(digest, (body,), source.content_type, headers),
        represent(digest, (compressed,), source.content_type, headers, zipped=True),
    )


def _contract_yaml(settings: Settings, version: str) -> bytes:
    return contract_yaml(settings, version).encode()


def _swagger_files() -> Path:
    """The static files in the installed package, which is not imported: its code is for other frameworks."""
    found = find_spec("swagger_ui")
    if found is None or found.origin is None:
        raise FileNotFoundError("The package swagger-ui-py is not installed; install petstore-server's dependencies.")
    return Path(found.origin).parent / "static"
