"""Sign-in links, sessions and submitted forms of the operator console."""

from contextlib import suppress

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.sessions import FORM_LIFETIME, LINK_LIFETIME, SESSION_LIFETIME, Session, token_digest
from petstore_server.store.audit import record
from petstore_server.store.engine import Command, Part, Query, Work, transaction

_ADD = "INSERT INTO petstore.console_sessions (digest, kind, actor, expires_at) VALUES (%s, %s, %s, %s)"
_VALID = "FROM petstore.console_sessions WHERE digest = %s AND kind = %s AND expires_at > %s"
_CLAIM = """
    INSERT INTO petstore.console_forms (digest, submitted_at) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING digest
"""
_SUBJECT = "console"


class Sessions(Part):
    """What the console keeps in one store, which has only the SHA-256 of tokens and forms."""

    @transaction
    def create_link(self, token: str, actor: Actor) -> Work[float]:
        """Allow one sign-in with `token` (TOKEN_BYTES); return its end (Unix seconds). Deletes what has expired too."""
        expires_at = actor.at + LINK_LIFETIME
        yield Command("DELETE FROM petstore.console_sessions WHERE expires_at <= %s", (actor.at,))
        yield Command(_ADD, (token_digest(token), "link", actor.name, expires_at))
        yield record(actor, "console.create_link", _SUBJECT, Change(None, {"expires_at": expires_at}))
        return expires_at

    @transaction
    def sign_in(self, link: str, session: str, now: float) -> Work[Session | None]:
        """Replace a link by a session, both given by their tokens; None if it is not valid at `now`, or was used."""
        used = yield Query(f"DELETE {_VALID} RETURNING actor", (token_digest(link), "link", now))
        if not used:
            return None
        actor, expires_at = used[0][0], now + SESSION_LIFETIME
        yield Command(_ADD, (token_digest(session), "session", actor, expires_at))
        yield record(Actor(actor, now), "console.sign_in", _SUBJECT, Change(None, None))
        return Session(actor, expires_at)

    async def find(self, token: str, now: float) -> Session | None:
        """Find a session and extend it if the store takes changes; None if there is none at `now` (Unix seconds)."""
        digest = token_digest(token)
        rows = await self._engine.query(f"SELECT actor, expires_at {_VALID}", (digest, "session", now))
        session = Session(*rows[0]) if rows else None
        if session is not None and session.needs_extension(now):
            with suppress(ServiceUnavailable):
                await self._extend(digest, now + SESSION_LIFETIME)
        return session

    @transaction
    def _extend(self, digest: bytes, expires_at: float) -> Work[None]:
        sql = "UPDATE petstore.console_sessions SET expires_at = %s WHERE digest = %s AND kind = 'session'"
        yield Command(sql, (expires_at, digest))

    @transaction
    def claim_form(self, digest: bytes, now: float) -> Work[bool]:
        """Note that the form with this digest is submitted at `now`; False if it was before."""
        yield Command("DELETE FROM petstore.console_forms WHERE submitted_at < %s", (now - FORM_LIFETIME,))
        return bool((yield Query(_CLAIM, (digest, now))))

    async def find_form(self, digest: bytes) -> float | None:
        """When the form with this digest was submitted (Unix seconds), None if it was not."""
        sql = "SELECT submitted_at FROM petstore.console_forms WHERE digest = %s"
        rows = await self._engine.query(sql, (digest,))
        return float(rows[0][0]) if rows else None

    @transaction
    def release_form(self, digest: bytes) -> Work[None]:
        """Let a form be submitted again, which has changed nothing."""
        yield Command("DELETE FROM petstore.console_forms WHERE digest = %s", (digest,))

    @transaction
    def end(self, token: str) -> Work[None]:
        """End a session; ending it twice changes nothing."""
        yield Command("DELETE FROM petstore.console_sessions WHERE digest = %s", (token_digest(token),))

    @transaction
    def end_all(self, actor: Actor) -> Work[int]:
        """End all sessions and revoke all unused links; return the number of sessions."""
        ended = yield Query("DELETE FROM petstore.console_sessions RETURNING kind")
        sessions = ended.count(("session",))
        yield record(actor, "console.end_sessions", _SUBJECT, Change(None, {"sessions": sessions}))
        return sessions
