"""Access to the operator console: sign-in links and sessions. Tokens are random, and only their SHA-256 is stored."""

from typing import NamedTuple

from petstore_server.domain.digests import sha256
from petstore_server.domain.roles import Role
from petstore_server.domain.timestamps import DAY, HOUR, MINUTE

TOKEN_BYTES = 20  # the random bytes of a token: 160 bits
LINK_LIFETIME = 5 * MINUTE  # seconds for which a sign-in link can be used, once
SESSION_LIFETIME = 12 * HOUR  # seconds without a request after which a session ends
FORM_LIFETIME = 366 * DAY  # seconds for which a form that was submitted is not done again
CLOCK_TOLERANCE = HOUR  # seconds by which the clocks of two hosts may differ
EXTEND_AFTER = 60  # seconds after which a request extends its session again: not every request needs to write

_ID_DIGITS = 12  # hexadecimal: 48 bits, which tell the few sessions of a store apart


class Session(NamedTuple):
    """A session of the console: the actor of its changes (`operator:NAME`), its role, begin and end (Unix seconds).

    `id` identifies it to operators; it gives no access. `began_at` is None if release 1.0.0 began the session.
    """

    id: str
    actor: str
    role: Role
    began_at: float | None
    expires_at: float

    @property
    def operator(self) -> str:
        return self.actor.removeprefix("operator:")

    @property
    def used_at(self) -> float:
        """When a request last extended it, in Unix seconds: EXTEND_AFTER before the last request at most."""
        return self.expires_at - SESSION_LIFETIME

    def needs_extension(self, now: float) -> bool:
        """Whether a request at `now` (Unix seconds) moves the end of the session."""
        return now - self.used_at > EXTEND_AFTER


def session_id(digest: bytes) -> str:
    """The identifier of the session with this digest of its token."""
    return f"session_{digest.hex()[:_ID_DIGITS]}"


def token_digest(token: str, role: Role = Role.ADMIN) -> bytes:
    """The SHA-256 of a token, 32 bytes: the form in which it is stored and looked up.

    The role is a part of what is hashed, except that of an admin: release 1.0.0 gives all rights to every session that
    it finds, and so finds only those that have them. The byte between the role and the token is in no UTF-8, so that no
    text of a browser is hashed to the same.
    """
    text = token.encode("utf-8", "surrogatepass")
    return sha256(text if role is Role.ADMIN else role.encode() + b"\xff" + text)
