"""Who is asking: from the Authorization header to a grant (spec S5; D9)."""

from collections.abc import Callable

from petstore_server.domain.errors import InvalidApiKey, MissingApiKey
from petstore_server.domain.keys import Environment, Principal, digest, is_well_formed
from petstore_server.ports import Keys

REMEMBERED = 65_536
"""Grants kept in memory at most."""

TRUSTED_SECONDS = 60.0
"""How long a grant is trusted without word from the store, when the store cannot be reached (D19)."""


class Authenticator:
    """Turns bearer keys into grants, and remembers those of valid keys until the store says that access changed."""

    def __init__(self, keys: Keys, environment: Environment, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._environment = environment
        self._clock = clock
        self._grants: dict[bytes, Principal] = {}
        self._confirmed_at = clock()

    def confirm(self, *, changed: bool) -> None:
        """Note that the store was heard just now; where access `changed`, nothing remembered counts any more."""
        if changed:
            self._grants = {}  # a new table: a look-up under way remembers its answer in the old one
        self._confirmed_at = self._clock()

    async def identify(self, authorization: bytes | None) -> Principal:
        """The grant of the key in an Authorization header; of several, joined by commas, none is valid.

        Every key that is well-formed but not valid costs a look-up, whatever is wrong with it: nothing can be told
        from the time that the answer took. Raises MissingApiKey, InvalidApiKey, and ServiceUnavailable where the key
        could not be looked up.
        """
        key = _bearer(authorization)
        key_digest = digest(key)
        now = self._clock()
        grants = self._grants
        principal = grants.get(key_digest)
        if principal is not None and principal.holds(now) and abs(now - self._confirmed_at) <= TRUSTED_SECONDS:
            return principal
        if not is_well_formed(key):
            raise InvalidApiKey
        principal = await self._keys.principal(key_digest, self._environment, now)
        if principal is None:
            raise InvalidApiKey
        if len(grants) >= REMEMBERED:
            grants.clear()
        grants[key_digest] = principal
        return principal


def _bearer(authorization: bytes | None) -> str:
    """The token of a bearer credential.

    The scheme's case does not matter (RFC 9110 §11.1); another scheme or an empty token counts as missing.
    """
    scheme, _, token = (authorization or b"").partition(b" ")
    token = token.strip(b" \t")
    if scheme.lower() != b"bearer" or not token:
        raise MissingApiKey
    return token.decode("latin-1")
