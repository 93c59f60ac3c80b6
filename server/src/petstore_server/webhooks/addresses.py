"""Which addresses webhooks may reach: public ones, and those that the operator allows (D24).

A URL is checked when it is set and at each delivery, then with the addresses of its name, one of which is connected to:
a second look-up could have another result.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from petstore_server.domain.texts import looks_like_key
from petstore_server.settings.values import Address, Network, parse_address

MAX_URL = 2048  # characters
_PORTS = {"https": 443, "http": 80}
_URL = re.compile(r"[!-~]+", re.ASCII)  # neither spaces nor control characters, as HTTP needs it
_PLACE = re.compile(r"(.*@)?(\[[0-9A-Za-z:.%]+\]|[^][:]*)(:[0-9]+)?")  # what some versions of Python let pass
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.ASCII)
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?", re.ASCII)  # the last label of what some resolvers take for an address

_IPV6 = ipaddress.ip_network("2000::/3")  # all that is assigned; the rest has many ways to write IPv4 addresses
# What `is_global` takes for public, in some version of Python, and leads elsewhere: addresses that two clouds give
# their metadata, 6to4 (which is IPv4), protocols, and documentation.
_NEVER = [
    ipaddress.ip_network(text)
    for text in ("168.63.129.16", "192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2002::/16", "3fff::/20")
]


class AddressRefused(Exception):
    """A webhook may not reach an address, or its name has none. The message is a clause with the reason."""


class Destination(NamedTuple):
    """Where a URL leads: its scheme, the host and port of its server, and the target of the request (RFC 9112).

    `host` has no brackets.
    """

    scheme: str
    host: str
    port: int
    target: str


class Addresses:
    """Decides which addresses may be reached, by the networks that are allowed besides public addresses."""

    def __init__(self, networks: Sequence[Network] = (), lookups: int = 64) -> None:
        """At most so many names are looked up at the same time."""
        self._networks = networks
        self._places = asyncio.Semaphore(lookups)

    def destination(self, url: str) -> Destination:
        """Check everything of a URL but the addresses of its name. Raises AddressRefused."""
        if len(url) > MAX_URL or not _URL.fullmatch(url) or "\\" in url:
            raise AddressRefused(f"it must have at most {MAX_URL} visible ASCII characters; percent-encode others")
        if looks_like_key(url):
            raise AddressRefused("it must not contain an API key")
        parts, port = _parsed(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and self._networks):
            raise AddressRefused("it must begin with https://")
        if "@" in parts.netloc:
            raise AddressRefused("it must have no user name or password; messages are signed")
        if parts.fragment or url.endswith("#"):
            raise AddressRefused("it must have no fragment")
        target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        destination = Destination(parts.scheme, parts.hostname or "", port or _PORTS[parts.scheme], target)
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
        found = await self._look_up(destination)
        addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        for text in addresses:
            self._require_allowed(ipaddress.ip_address(text), destination.scheme, "its name has an address that")
        return addresses

    async def _look_up(self, destination: Destination) -> list[Any]:
        """The addresses of a host as `getaddrinfo` returns them, none if it has none."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        found = loop.create_future()

        def ended(result: list[Any]) -> None:
            self._places.release()
            if not found.done():  # the caller may have gone away
                found.set_result(result)

        def run() -> None:
            result: list[Any] = []
            with suppress(OSError, ValueError):
                result = socket.getaddrinfo(destination.host, destination.port, type=socket.SOCK_STREAM)
            with suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(ended, result)

        # A look-up may take many seconds. An executor would have the process wait for it at its end.
        Thread(target=run, name="webhook-names", daemon=True).start()
        return list(await found)

    def _check_host(self, destination: Destination) -> None:
        host = destination.host
        if "%" in host:
            raise AddressRefused("its host must have no percent sign, as of an escape or a zone")
        address = parse_address(host)
        if address is not None:
            self._require_allowed(address, destination.scheme, "its address")
        elif not _NAME.fullmatch(host) or len(host) > 253:
            raise AddressRefused("it must name a host; write other alphabets in Punycode")
        elif _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
            raise AddressRefused("it must have an IPv4 address in its usual form, such as 192.0.2.1")

    def _require_allowed(self, address: Address, scheme: str, name: str) -> None:
        """Raise AddressRefused for an address that may not be reached: without TLS, all but those of the networks."""
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks):
            return
        special = address.is_multicast or any(address in network for network in _NEVER)
        if special or not address.is_global or (address.version == 6 and address not in _IPV6):
            raise AddressRefused(f"{name} is not public")
        if scheme != "https":
            raise AddressRefused(f"{name} is in no network that the operator allows, so it must begin with https://")


def _parsed(url: str) -> tuple[SplitResult, int | None]:
    """The parts of a URL, and its port. Raises AddressRefused."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused("it cannot be parsed") from None
    if not _PLACE.fullmatch(parts.netloc):
        raise AddressRefused("it cannot be parsed")
    if port == 0:
        raise AddressRefused("its port must be from 1 to 65535")
    return parts, port
