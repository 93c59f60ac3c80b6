"""Sign-in links and sessions of the operator console."""

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.sessions import Session
from petstore_server.store.audit import record
from petstore_server.store.engine import Command, Part, Query, Work, transaction

_ADD = "INSERT INTO petstore.console_sessions (digest, kind, actor, expires_at) VALUES (%s, %s, %s, %s)"
_FORGET_EXPIRED = "DELETE FROM petstore.console_sessions WHERE expires_at <= %s"
_USE_LINK = """
    DELETE FROM petstore.console_sessions WHERE digest = %s AND kind = 'link' AND expires_at > %s RETURNING actor
"""
_FIND = """
    SELECT actor, expires_at FROM petstore.console_sessions WHERE digest = %s AND kind = 'session' AND expires_at > %s
"""
_EXTEND = "UPDATE petstore.console_sessions SET expires_at = %s WHERE digest = %s AND kind = 'session'"
_END = "DELETE FROM petstore.console_sessions WHERE digest = %s"
_END_ALL = "DELETE FROM petstore.console_sessions RETURNING kind"
_SUBJECT = "console"


class Sessions(Part):
    """The console's sign-in links and sessions of one store. They are found by the SHA-256 of their token."""

    @transaction
    def add_link(self, digest: bytes, expires_at: float, actor: Actor) -> Work[None]:
        """Store a link that signs in as `actor`, and delete what has expired."""
        yield Command(_FORGET_EXPIRED, (actor.at,))
        yield Command(_ADD, (digest, "link", actor.name, expires_at))
        yield record(actor, "console.create_link", _SUBJECT, Change(None, {"expires_at": expires_at}))

    @transaction
    def sign_in(self, link: bytes, session: bytes, expires_at: float, now: float) -> Work[Session | None]:
        """Replace a link by a session, both given by their digests; None unless the link is valid at `now`.

        Exactly one of several concurrent calls with the same link succeeds.
        """
        used = yield Query(_USE_LINK, (link, now))
        if not used:
            return None
        actor = used[0][0]
        yield Command(_ADD, (session, "session", actor, expires_at))
        yield record(Actor(actor, now), "console.sign_in", _SUBJECT, Change(None, None))
        return Session(actor, expires_at)

    async def find(self, digest: bytes, now: float) -> Session | None:
        """The session if it has not ended at `now`."""
        found = await self._engine.query(_FIND, (digest, now))
        return Session(*found[0]) if found else None

    @transaction
    def extend(self, digest: bytes, expires_at: float) -> Work[None]:
        """Move the end of a session that exists."""
        yield Command(_EXTEND, (expires_at, digest))

    @transaction
    def end(self, digest: bytes) -> Work[None]:
        """End a session; ending it twice changes nothing."""
        yield Command(_END, (digest,))

    @transaction
    def end_all(self, actor: Actor) -> Work[int]:
        """End all sessions and delete all links; return the number of sessions."""
        ended = yield Query(_END_ALL)
        sessions = sum(str(kind) == "session" for (kind,) in ended)
        yield record(actor, "console.end_sessions", _SUBJECT, Change(None, {"sessions": sessions}))
        return sessions
