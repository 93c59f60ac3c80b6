"""Access to the operator console: sign-in links and sessions."""

from typing import Protocol

from petstore_server.domain.sessions import Session
from petstore_server.ports.audit import Actor


class Sessions(Protocol):
    """Links and sessions are found by the SHA-256 of their token."""

    async def add_link(self, digest: bytes, expires_at: float, actor: Actor) -> None:
        """Store a link that signs in as `actor`, and delete what has expired."""

    async def sign_in(self, link: bytes, session: bytes, expires_at: float, now: float) -> Session | None:
        """Replace a link by a session, both given by their digests; None unless the link is valid at `now`.

        Exactly one of several concurrent calls with the same link succeeds.
        """

    async def find(self, digest: bytes, now: float) -> Session | None:
        """The session if it has not ended at `now`."""

    async def extend(self, digest: bytes, expires_at: float) -> None:
        """Move the end of a session that exists."""

    async def end(self, digest: bytes) -> None:
        """End a session; ending it twice changes nothing."""

    async def end_all(self, actor: Actor) -> int:
        """End all sessions and delete all links; return the number of sessions."""
