"""The address of a client, also behind proxies (D14)."""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache

from petstore_server.settings import Network

UNKNOWN = "unknown"
"""Stands for clients without an address, such as over a Unix socket."""

_LONGEST = 64  # characters of an address with brackets, port and zone: clients choose the texts that are kept
_KEPT = 16_384  # some 300 bytes each

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ClientAddress:
    """Finds the client address of a request, as text: an IPv4 address, or the /64 of an IPv6 address.

    The header is read only if the peer is a trusted proxy. The client is then the last address in it that is not a
    trusted proxy: the client may have written everything to the left of it.
    """

    def __init__(self, trusted: Sequence[Network], header: str) -> None:
        self._trusted = tuple(trusted)
        self._header = header.lower().encode()
        self._read = _forwarded if self._header == b"forwarded" else _x_forwarded_for
        self._is_trusted = lru_cache(maxsize=4096)(self._look_up)

    def __call__(self, peer: str | None, headers: Mapping[bytes, bytes]) -> str:
        """The address to count, from the connection's peer and the request's headers (repeated ones joined)."""
        if peer is None:
            return UNKNOWN
        if self._trusted and self._is_trusted(peer):
            for hop in reversed(self._read(headers.get(self._header, b"").decode("latin-1"))):
                address = _parse(hop)
                if address is None:
                    break  # unreadable, so nothing to the left of it can be trusted
                peer = hop
                if not self._is_trusted(hop):
                    break
        return counted(peer)

    def _look_up(self, text: str) -> bool:
        address = _parse(text)
        return address is not None and any(address in network for network in self._trusted)


@lru_cache(maxsize=_KEPT)
def counted(text: str) -> str:
    """The text that stands for an address in counts."""
    address = _parse(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address) if address else UNKNOWN


def _parse(text: str) -> _Address | None:
    """Read an address, with or without brackets, port or zone. An IPv4-mapped IPv6 address is an IPv4 address."""
    return _read(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=_KEPT)
def _read(text: str) -> _Address | None:
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def _x_forwarded_for(line: str) -> list[str]:
    return [hop.strip() for hop in line.split(",") if hop.strip()]


def _forwarded(line: str) -> list[str]:
    """The `for` of each element, in order (RFC 7239 section 4). An element without one is unreadable: an empty text."""
    hops = []
    for element in line.split(","):
        pairs = dict(pair.strip().partition("=")[::2] for pair in element.split(";"))
        hops.append(next((value for name, value in pairs.items() if name.strip().lower() == "for"), ""))
    return hops
