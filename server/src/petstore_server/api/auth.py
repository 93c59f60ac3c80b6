"""Authentication: from the Authorization header to a principal (spec S5; D9)."""

from collections.abc import Callable

from petstore_server.domain.errors import InvalidApiKey, MissingApiKey
from petstore_server.domain.keys import Environment, Principal, digest, is_well_formed
from petstore_server.server.messages import Request
from petstore_server.store.access import Keys

MAX_KNOWN = 65_536
"""Principals kept in memory, some 500 bytes each."""

TRUSTED_SECONDS = 60.0
"""For how long a known principal is trusted while the store does not answer (D19)."""


class Authenticator:
    """Finds the principal of a request, and keeps those of valid keys until the store reports a change of access.

    `clock` gives Unix seconds.
    """

    def __init__(self, keys: Keys, environment: Environment, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._environment = environment
        self._clock = clock
        self._known: dict[bytes | None, Principal] = {}  # by the usual Authorization header
        self._confirmed_at = clock()

    def confirm(self, changed: bool) -> None:
        """Note that the store has answered; if access has `changed`, forget all principals."""
        if changed:
            self._known = {}  # a new table: a look-up in progress must not put its result into it
        self._confirmed_at = self._clock()

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
        table = self._known
        token = _bearer_token(authorization)
        if not token:
            raise MissingApiKey
        usual = b"Bearer " + token  # one entry for a key, however the header spells it
        principal = self.known(usual)
        if principal is not None:
            return principal
        key = token.decode("latin-1")
        if not is_well_formed(key):
            raise InvalidApiKey
        found = await self._keys.principal(digest(key), self._environment, self._clock())
        if not isinstance(found, Principal):
            raise InvalidApiKey(found)
        if len(table) >= MAX_KNOWN:
            del table[next(iter(table))]  # the oldest
        table[usual] = found
        return found


def _bearer_token(authorization: bytes | None) -> bytes:
    """The token of a bearer credential; empty if there is none, or another scheme.

    The scheme is case-insensitive (RFC 9110 section 11.1). Repeated headers, joined by a comma, are not a well-formed
    key.
    """
    scheme, _, token = (authorization or b"").partition(b" ")
    return token.strip(b" \t") if scheme.lower() == b"bearer" else b""
