"""Who may use the console: checks of Host, Origin and session, and the headers of every response.

The console is on a private port, but a browser that reaches it also runs pages of other sites: DNS rebinding, forms
submitted from elsewhere, and frames are refused here (decision record 0018).
"""

import hmac
import ipaddress
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import urlsplit

from petstore_server.settings import Settings

PATH = "/console"
"""Where the console is on the admin port, and the path of its cookies."""

SESSION_COOKIE = "petstore_console"
NOTICE_COOKIE = "petstore_notice"

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "style-src 'self'",
            "img-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Sent with every response of the console."""


def is_allowed_host(host: str, settings: Settings) -> bool:
    """Whether a Host header names this machine, the admin host, or one of PETSTORE_CONSOLE_HOSTS."""
    name = host_name(host)
    return name is not None and (
        _is_loopback(name) or name == settings.admin_host.lower() or name in settings.console_hosts
    )


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Whether a form was submitted from a page of this console.

    Browsers send `Origin: null` with forms of a page that has `Referrer-Policy: no-referrer`. Then Sec-Fetch-Site says
    where the form came from; they send that to loopback addresses and over HTTPS.
    """
    host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    if origin is None:
        return True
    if origin == "null":
        return site is not None or not _is_loopback(host_name(host) or "")
    return origin.partition("://")[2].lower() == host.lower()


def form_token(session_token: str) -> str:
    """The token that every form of a session carries."""
    return _mac(session_token, b"form")


def is_form_token(given: str, session_token: str) -> bool:
    """Whether a form carries the token of this session."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), form_token(session_token).encode())


def signature(session_token: str, text: str) -> str:
    """Proves that a text was made by the console for this session."""
    return _mac(session_token, b"notice:" + text.encode())


def host_name(host: str) -> str | None:
    """The name in a Host header in lower case, without its port; None if the header is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname.rstrip(".") if parts.hostname else None


def _mac(key: str, text: bytes) -> str:
    return hmac.new(key.encode("utf-8", "surrogatepass"), text, sha256).hexdigest()


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
