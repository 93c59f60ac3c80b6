"""The admin port: its address, under which names it responds, and where the console is."""

import ipaddress
from urllib.parse import urlsplit

from petstore_server.settings import Settings

CONSOLE_PATH = "/console"
"""Where the console is on the admin port, and the path of its cookies."""


def admin_url(settings: Settings) -> str:
    """The address of the admin port of the settings, as seen from this machine."""
    return f"http://{_in_url(settings.admin_host)}:{settings.admin_port}"


def sign_in_url(address: str, token: str) -> str:
    """The link that signs in to the console; `address` is that of the admin port, such as http://127.0.0.1:8081."""
    return f"{address.rstrip('/')}{CONSOLE_PATH}/sign-in?token={token}"


def is_allowed_host(host: str, settings: Settings) -> bool:
    """Whether a Host header names this machine, the admin host, or one of PETSTORE_CONSOLE_HOSTS."""
    name = host_name(host)
    return name is not None and (
        is_loopback(name) or name == settings.admin_host.lower() or name in settings.console_hosts
    )


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


def is_loopback(name: str) -> bool:
    """Whether a host name is that of this machine for itself."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _in_url(host: str) -> str:
    """The address at which a server that listens on `host` answers on this machine."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host
