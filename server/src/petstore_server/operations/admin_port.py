"""The admin port: its address, the names under which it responds, and sign-in links to the console."""

import secrets
from urllib.parse import urlsplit

from petstore_server.domain.audit import Actor
from petstore_server.domain.roles import Role
from petstore_server.domain.sessions import TOKEN_BYTES
from petstore_server.settings import Settings
from petstore_server.settings.values import Address, parse_address
from petstore_server.store import Store

CONSOLE_PATH = "/console"  # where the console is on the admin port, and the path of its cookies
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - on this machine, what listens on all


def admin_url(settings: Settings) -> str:
    """The address of the admin port of the settings, as seen from this machine."""
    return http_url(_REACHED_AT.get(settings.admin_host, settings.admin_host), settings.admin_port)


def http_url(host: str, port: int) -> str:
    """The URL of a port on a host, which may be an IPv6 address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def create_link(store: Store, address: str, actor: Actor, role: Role = Role.ADMIN) -> tuple[str, float]:
    """Make a link that signs in to the console at this address once; return it and its end (Unix seconds)."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    expires_at = await store.sessions.create_link(token, actor, role)
    return f"{address.rstrip('/')}{CONSOLE_PATH}/sign-in?token={token}", expires_at


WRONG_HOST = "This host name is not allowed here; add it to PETSTORE_CONSOLE_HOSTS, or use 127.0.0.1.\n"


def is_probe_host(host: str, settings: Settings) -> bool:
    """Whether a Host header is one with which programs ask for health and metrics; empty if there is none.

    A page of another site can have a browser read them only under a name in the DNS, which has a dot (DNS rebinding).
    Addresses, and names of services and containers without a dot, are allowed; other names as for the console.
    """
    name = host_name(host)
    return not host or (
        name is not None and ("." not in name or parse_address(name) is not None or is_allowed_host(host, settings))
    )


def is_allowed_host(host: str, settings: Settings) -> bool:
    """Whether a Host header names this machine, the admin host, or one of PETSTORE_CONSOLE_HOSTS."""
    name = host_name(host)
    own = (settings.admin_host.lower(), *settings.console_hosts)
    return name is not None and (is_loopback(name) or _plain(name) in map(_plain, own))


def _plain(name: str) -> Address | str:
    """A host name, or the address that it is: a browser sends IPv6 ones in their shortest form."""
    return parse_address(name) or name


def is_console_proxy(peer: str, settings: Settings) -> bool:
    """Whether the address of a connection is that of a proxy that signs operators in."""
    address = parse_address(peer.partition("%")[0])
    return address is not None and any(address in network for network in settings.console_proxies)


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
    address = parse_address(name)
    return name == "localhost" or name.endswith(".localhost") if address is None else address.is_loopback


def is_private(name: str) -> bool:
    """Whether a host name is one private address, which other networks do not reach."""
    address = parse_address(name)
    return address is not None and address.is_private and not address.is_unspecified
