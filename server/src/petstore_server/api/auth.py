"""Authentication: from the Authorization header to a principal (spec S5; D9)."""

from collections.abc import Callable
from functools import lru_cache

from petstore_server.domain.errors import InvalidApiKey, MissingApiKey
from petstore_server.domain.keys import KEY_LENGTH, Environment, Principal, digest, is_well_formed
from petstore_server.store.keys import Keys

MAX_KNOWN = 65_536
"""Principals kept in memory, some 500 bytes each."""

_USUAL_LENGTH = 64  # bytes of an Authorization header with a key

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
        self._known: dict[bytes, Principal] = {}  # by the digest of the key
        self._confirmed_at = clock()

    def confirm(self, *, changed: bool) -> None:
        """Note that the store has answered; if access has `changed`, forget all principals."""
        if changed:
            self._known = {}  # a new table: a look-up in progress must not put its result into it
        self._confirmed_at = self._clock()

    def known(self, credential: bytes | None) -> Principal | None:
        """The principal of a key that `identify` accepted before, unless the store has to be asked again.

        `credential` is the digest of the key.
        """
        principal = self._known.get(credential) if credential is not None else None
        now = self._clock()
        if principal is None or not principal.holds(now) or abs(now - self._confirmed_at) > TRUSTED_SECONDS:
            return None
        return principal

    async def identify(self, authorization: bytes | None) -> Principal:
        """Look up the principal of the key in an Authorization header.

        A well-formed key that is not valid takes one look-up whatever the reason, so that response times do not reveal
        it. Raises MissingApiKey, InvalidApiKey, and ServiceUnavailable if the key could not be looked up.
        """
        known, now = self._known, self._clock()
        key = _bearer_token(authorization).decode("latin-1")
        if not key:
            raise MissingApiKey
        if not is_well_formed(key):
            raise InvalidApiKey
        credential = digest(key)
        principal = await self._keys.principal(credential, self._environment, now)
        if not isinstance(principal, Principal):
            raise InvalidApiKey(principal)
        if len(known) >= MAX_KNOWN:
            del known[next(iter(known))]  # the oldest
        known[credential] = principal
        return principal


def credential(authorization: bytes | None) -> bytes | None:
    """The digest of the key in an Authorization header; None if it holds nothing as long as a key."""
    if authorization is None:
        return None
    return _usual_credential(authorization) if len(authorization) <= _USUAL_LENGTH else _credential(authorization)


@lru_cache(maxsize=4096)  # a look-up costs a tenth of a digest
def _usual_credential(authorization: bytes) -> bytes | None:
    return _credential(authorization)


def _credential(authorization: bytes) -> bytes | None:
    token = _bearer_token(authorization)
    return digest(token.decode("latin-1")) if len(token) == KEY_LENGTH else None


def _bearer_token(authorization: bytes | None) -> bytes:
    """The token of a bearer credential; empty if there is none, or another scheme.

    The scheme is case-insensitive (RFC 9110 section 11.1). Repeated headers, joined by a comma, are not a well-formed
    key.
    """
    scheme, _, token = (authorization or b"").partition(b" ")
    return token.strip(b" \t") if scheme.lower() == b"bearer" else b""
