"""Access to the operator console: sign-in links and sessions. Tokens are random, and only their SHA-256 is stored."""

from typing import NamedTuple

from petstore_server.domain.digests import sha256
from petstore_server.domain.timestamps import DAY, HOUR, MINUTE

TOKEN_BYTES = 20  # the random bytes of a token: 160 bits
LINK_LIFETIME = 5 * MINUTE  # seconds for which a sign-in link can be used, once
SESSION_LIFETIME = 12 * HOUR  # seconds without a request after which a session ends
FORM_LIFETIME = 366 * DAY  # seconds for which a form that was submitted is not done again
EXTEND_AFTER = 60  # seconds after which a request extends its session again: not every request needs to write


class Session(NamedTuple):
    """A session of the console: the actor of its changes (`operator:NAME`) and its end in Unix seconds."""

    actor: str
    expires_at: float

    @property
    def operator(self) -> str:
        return self.actor.removeprefix("operator:")

    def needs_extension(self, now: float) -> bool:
        """Whether a request at `now` (Unix seconds) moves the end of the session."""
        return self.expires_at - now < SESSION_LIFETIME - EXTEND_AFTER


def token_digest(token: str) -> bytes:
    """The SHA-256 of a token, 32 bytes: the form in which it is stored and looked up."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
