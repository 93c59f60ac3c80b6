"""Who makes a request: the principal of its key (spec S5; D9), and the address, including behind proxies (D14)."""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from petstore_server.domain.errors import InvalidApiKey, MissingApiKey
from petstore_server.domain.keys import Environment, Principal, RefusedKey, digest, is_well_formed
from petstore_server.server.messages import Request
from petstore_server.settings.values import Address, Network, parse_address
from petstore_server.store.access import Keys

MAX_PRINCIPALS = 65_536  # kept in memory, some 500 bytes each
TRUSTED_SECONDS = 60.0  # for which a known principal is trusted while the store does not answer (D19)
UNKNOWN = "unknown"  # the address of a client without one, such as over a Unix socket
_MAX_ADDRESS_TEXT = 64  # characters of an address with brackets, port and zone: clients choose the texts that are kept
_MAX_HOPS = 32  # that are read, from the last one on: a client may write thousands that look like trusted proxies
_MAX_PARAMETERS = 8  # of a hop in Forwarded that are read: it has four
_KEPT = 16_384  # some 300 bytes each


class Authenticator:
    """Finds the principal of a request, and keeps those of valid keys until the store reports a change of access.

    `clock` gives Unix seconds.
    """

    def __init__(self, keys: Keys, environment: Environment, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._environment = environment
        self._clock = clock
        self._known: OrderedDict[bytes | None, Principal] = OrderedDict()  # by the usual Authorization header
        self._confirmed_at = clock()

    def confirm(self, changed: bool) -> None:
        """Note that the store has answered; if access has `changed`, forget all principals."""
        if changed:
            self._known = OrderedDict()  # a new table: a look-up in progress must not put its result into it
        self._confirmed_at = self._clock()

    def knows_keys(self) -> bool:
        """Whether requests with some key are served without looking it up."""
        return bool(self._known)

    def known(self, authorization: bytes | None) -> Principal | None:
        """The principal of a key that `identify` accepted before, unless the store has to be asked again."""
        principal = self._known.get(authorization)
        now = self._clock()
        if principal is None or not principal.holds(now) or abs(now - self._confirmed_at) > TRUSTED_SECONDS:
            return None
        return principal

    def account_of(self, request: Request) -> int | None:
        """The account of a request whose key was accepted before; it may no longer be valid."""
        principal = self._known.get(request.headers.get(b"authorization"))
        return None if principal is None else principal.account_id

    async def identify(self, authorization: bytes | None) -> Principal:
        """Look up the principal of the key in an Authorization header.

        A well-formed key that is not valid takes one look-up whatever the reason, so that response times do not reveal
        it. Raises MissingApiKey, InvalidApiKey, and ServiceUnavailable if the key could not be looked up.
        """
        table: OrderedDict[bytes | None, Principal] = self._known
        scheme, _, token = (authorization or b"").partition(b" ")
        token = token.strip(b" \t")
        if not token or scheme.lower() != b"bearer":  # a scheme has no case (RFC 9110 section 11.1)
            raise MissingApiKey
        usual = b"Bearer " + token  # one entry for a key, however the header spells it
        principal = self.known(usual)
        if principal is not None:
            return principal
        key = token.decode("latin-1")
        if not is_well_formed(key):
            raise InvalidApiKey
        holder = await self._keys.principal(digest(key), self._environment, self._clock())
        if holder is None:
            raise InvalidApiKey
        if isinstance(holder, RefusedKey):
            raise InvalidApiKey(key=holder.key_id, account=holder.account, state=holder.state)
        if len(table) >= MAX_PRINCIPALS:
            table.popitem(last=False)  # the oldest
        table[usual] = holder
        return holder


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
            line = headers.get(self._header, b"").decode("latin-1")
            for hop in reversed(self._read(line.rsplit(",", _MAX_HOPS)[-_MAX_HOPS:])):
                if counted(hop[: _MAX_ADDRESS_TEXT + 1]) == UNKNOWN:
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


def _parse(text: str) -> Address | None:
    """Read an address, with or without brackets, port or zone."""
    bare = text.strip().strip('"') if len(text) <= _MAX_ADDRESS_TEXT else ""
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    return parse_address(bare.partition("%")[0])


def _x_forwarded_for(elements: list[str]) -> list[str]:
    return [hop.strip() for hop in elements if hop.strip()]


def _forwarded(elements: list[str]) -> list[str]:
    """The `for` of each element, in order (RFC 7239 section 4). An element without one is unreadable: an empty text."""
    hops = []
    for element in elements:
        pairs = dict(pair.strip().partition("=")[::2] for pair in element.split(";", _MAX_PARAMETERS))
        hops.append(next((value for name, value in pairs.items() if name.strip().lower() == "for"), ""))
    return hops
