"""Which addresses webhooks may reach: public ones, and those that the operator allows (D24).

A URL is checked when it is set and at each delivery, then with the addresses of its name, one of which is connected to:
a second look-up could have another result.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from petstore_server.domain.texts import looks_like_key

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_URL = 2048  # characters
_MAX_LOOKUPS = 32  # names that are looked up at the same time
_PORTS = {"https": 443, "http": 80}
_URL = re.compile(r"[!-~]+", re.ASCII)  # neither spaces nor control characters, as HTTP needs it
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.ASCII)
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?", re.ASCII)  # the last label of what some resolvers take for an address

# What `is_global` takes for public, in some version of Python, and leads elsewhere: translation to IPv4 (NAT64, 6to4),
# IPv4 in IPv6, documentation, and segment routing.
_NEVER = [
    ipaddress.ip_network(text)
    for text in (
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2002::/16",
        "192.88.99.0/24",
        "::/96",
        "fec0::/10",
        "3fff::/20",
        "5f00::/16",
    )
]


class AddressRefused(Exception):
    """A webhook may not reach an address, or it has none. The message is a clause that says why."""


class Destination(NamedTuple):
    """Where a URL leads: its scheme, and the host and port of its server. `host` has no brackets."""

    scheme: str
    host: str
    port: int


class Addresses:
    """Decides which addresses may be reached, by the networks that are allowed besides public addresses."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = networks
        # Threads of its own: a look-up may take many seconds, and the store uses the event loop's.
        self._resolvers = ThreadPoolExecutor(_MAX_LOOKUPS, thread_name_prefix="webhook-names")

    def close(self) -> None:
        """Let look-ups end by themselves."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def destination(self, url: str) -> Destination:
        """Check a URL as far as that is possible without a look-up. Raises AddressRefused."""
        if len(url) > MAX_URL or not _URL.fullmatch(url) or "\\" in url:
            raise AddressRefused(f"it must have at most {MAX_URL} visible ASCII characters; percent-encode others")
        if looks_like_key(url):
            raise AddressRefused("it must not hold an API key")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise AddressRefused("it cannot be parsed") from None
        if parts.scheme != "https" and not (parts.scheme == "http" and self._networks):
            raise AddressRefused("it must begin with https://")
        if "@" in parts.netloc:
            raise AddressRefused("it must have no user name or password; messages are signed")
        if parts.fragment or url.endswith("#"):
            raise AddressRefused("it must have no fragment")
        if port == 0:
            raise AddressRefused("its port must be from 1 to 65535")
        destination = Destination(parts.scheme, host, port or _PORTS[parts.scheme])
        self._check_host(destination)
        return destination

    async def resolve(self, destination: Destination) -> list[str]:
        """The addresses to connect to, the preferred one first. Raises AddressRefused unless all are allowed."""
        addresses = await self.check(destination)
        if not addresses:
            raise AddressRefused("its name cannot be resolved")
        return addresses

    async def check(self, destination: Destination) -> list[str]:
        """The addresses of the name, none if it cannot be resolved. Raises AddressRefused unless all are allowed."""
        look_up = partial(socket.getaddrinfo, destination.host, destination.port, type=socket.SOCK_STREAM)
        try:
            found: list[Any] = await asyncio.get_running_loop().run_in_executor(self._resolvers, look_up)
        except (OSError, UnicodeError):
            return []
        addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        if not all(self._is_allowed(ipaddress.ip_address(text), destination.scheme) for text in addresses):
            raise AddressRefused("its name has an address that is not public")
        return addresses

    def _check_host(self, destination: Destination) -> None:
        host = destination.host
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            if not _NAME.fullmatch(host) or len(host) > 253:
                raise AddressRefused("it must name a host; write other alphabets in Punycode") from None
            if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
                raise AddressRefused("it must have an IPv4 address in its usual form, such as 192.0.2.1") from None
            return
        if not self._is_allowed(address, destination.scheme):
            raise AddressRefused("its address is not public")

    def _is_allowed(self, address: Address, scheme: str) -> bool:
        """Whether an address may be reached; without TLS only one of the networks."""
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks):
            return True
        never = address.is_multicast or any(address in network for network in _NEVER)
        return scheme == "https" and address.is_global and not never
