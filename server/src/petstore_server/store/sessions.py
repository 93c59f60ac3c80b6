"""Sign-in links, sessions and submitted forms of the operator console."""

from collections.abc import Sequence
from contextlib import suppress

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.errors import ServiceUnavailable, SessionNotFound
from petstore_server.domain.roles import Role
from petstore_server.domain.sessions import (
    CLOCK_TOLERANCE,
    FORM_LIFETIME,
    LINK_LIFETIME,
    SESSION_LIFETIME,
    Session,
    session_id,
    token_digest,
)
from petstore_server.domain.texts import hide_keys
from petstore_server.store.audit import record
from petstore_server.store.engine import Part, transaction
from petstore_server.store.statements import Execute, Query, Row, Work, marks, one

_ADD = """
    INSERT INTO petstore.console_sessions (digest, kind, actor, role, began_at, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s)
"""
# One that ends later was made by a clock that was ahead, and has been set back since then.
_HOLDS = "kind = %s AND expires_at > %s AND expires_at <= %s"
_VALID = f"FROM petstore.console_sessions WHERE digest IN {marks(list(Role))} AND {_HOLDS}"
_DELETE_ENDED = "DELETE FROM petstore.console_sessions WHERE expires_at <= %s OR expires_at > %s"
_SESSION = "digest, actor, role, began_at, expires_at"
_ALL = f"SELECT {_SESSION} FROM petstore.console_sessions WHERE {_HOLDS}"
_CLAIM = """
    INSERT INTO petstore.console_forms (digest, submitted_at) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING digest
"""
_SUBJECT = "console"
_MAX_PATH = 200  # characters


class Sessions(Part):
    """What the console keeps in one store, which has only the SHA-256 of tokens and forms."""

    @transaction
    def create_link(self, token: str, actor: Actor, role: Role = Role.ADMIN) -> Work[float]:
        """Allow one sign-in with `token` (TOKEN_BYTES); return its end (Unix seconds). Deletes what has expired too."""
        expires_at = actor.at + LINK_LIFETIME
        yield Execute(_DELETE_ENDED, _held_session(actor.at)[1:])
        yield Execute(_ADD, (token_digest(token, role), "link", actor.name, str(role), actor.at, expires_at))
        change = Change(None, {"role": str(role), "expires_at": expires_at})
        yield record(actor, "console.create_link", _SUBJECT, change)
        return expires_at

    @transaction
    def sign_in(self, link: str, session: str, now: float) -> Work[Session | None]:
        """Replace a link by a session, both given by their tokens; None if it is not valid at `now`, or was used."""
        used = yield Query(f"DELETE {_VALID} RETURNING actor, role", (*_digests(link), *_held_link(now)))
        if not used:
            return None
        actor, role = used[0][0], Role(used[0][1])
        signed_in = token_digest(session, role), actor, role, now, now + SESSION_LIFETIME
        yield Execute(_ADD, (signed_in[0], "session", actor, str(role), *signed_in[3:]))
        yield record(Actor(actor, now), "console.sign_in", _SUBJECT, Change(None, {"role": str(role)}))
        return _session(signed_in)

    async def find(self, token: str, now: float) -> Session | None:
        """Find a session and extend it if the store takes changes; None if there is none at `now` (Unix seconds)."""
        rows = await self._engine.query(f"SELECT {_SESSION} {_VALID}", (*_digests(token), *_held_session(now)))
        session = _session(rows[0]) if rows else None
        if session is not None and session.needs_extension(now):
            with suppress(ServiceUnavailable):
                await self._extend(rows[0][0], now + SESSION_LIFETIME)
        return session

    async def list(self, now: float) -> Sequence[Session]:
        """The sessions that have not ended at `now` (Unix seconds), those that were used last first."""
        sql = f"{_ALL} ORDER BY expires_at DESC, digest"
        return [_session(row) for row in await self._engine.query(sql, _held_session(now))]

    @transaction
    def _extend(self, digest: bytes, expires_at: float) -> Work[None]:
        sql = "UPDATE petstore.console_sessions SET expires_at = %s WHERE digest = %s AND kind = 'session'"
        yield Execute(sql, (expires_at, digest))

    @transaction
    def claim_form(self, digest: bytes, now: float) -> Work[bool]:
        """Note that the form with this digest is submitted at `now`; False if it was before."""
        yield Execute("DELETE FROM petstore.console_forms WHERE submitted_at < %s", (now - FORM_LIFETIME,))
        return bool((yield Query(_CLAIM, (digest, now))))

    async def find_form(self, digest: bytes) -> float | None:
        """When the form with this digest was submitted (Unix seconds), None if it was not."""
        sql = "SELECT submitted_at FROM petstore.console_forms WHERE digest = %s"
        rows = await self._engine.query(sql, (digest,))
        return float(rows[0][0]) if rows else None

    @transaction
    def release_form(self, digest: bytes) -> Work[None]:
        """Let a form be submitted again, which has changed nothing."""
        yield Execute("DELETE FROM petstore.console_forms WHERE digest = %s", (digest,))

    @transaction
    def end(self, token: str) -> Work[None]:
        """End a session; ending it twice changes nothing."""
        yield Execute(f"DELETE FROM petstore.console_sessions WHERE digest IN {marks(list(Role))}", _digests(token))

    @transaction
    def end_one(self, identifier: str, actor: Actor) -> Work[Session]:
        """End the session with this identifier, of whatever operator, and return it. Raises SessionNotFound.

        Links of this operator that were not used are invalid from then on.
        """
        rows = yield Query(_ALL, _held_session(actor.at))
        found = one([row for row in rows if session_id(row[0]) == identifier], SessionNotFound, identifier)
        session = _session(found)
        # Another operator may have ended it since it was read.
        ended = "DELETE FROM petstore.console_sessions WHERE digest = %s RETURNING digest"
        one((yield Query(ended, found[:1])), SessionNotFound, identifier)
        yield Execute("DELETE FROM petstore.console_sessions WHERE kind = 'link' AND actor = %s", (session.actor,))
        fields = {"session": identifier, "operator": session.operator, "role": str(session.role)}
        yield record(actor, "console.end_session", _SUBJECT, Change(fields, None))
        return session

    @transaction
    def end_all(self, actor: Actor) -> Work[int]:
        """End all sessions and revoke all unused links; return the number of sessions."""
        all_now = Query("DELETE FROM petstore.console_sessions RETURNING kind")
        ended = yield all_now
        ended += yield all_now  # those that began with a link for which the first statement had to wait
        sessions = ended.count(("session",))
        yield record(actor, "console.end_sessions", _SUBJECT, Change(None, {"sessions": sessions}))
        return sessions

    @transaction
    def record_refusal(self, path: str, role: Role, needed: Role, actor: Actor) -> Work[None]:
        """Record that an operator submitted a form, by its path in the console, that needs another role."""
        fields = {"form": hide_keys(path)[:_MAX_PATH], "role": str(role), "needs": str(needed)}
        yield record(actor, "console.refuse", _SUBJECT, Change(None, fields))


def _held_link(now: float) -> tuple[str, float, float]:
    """The values of _HOLDS for a link at `now` (Unix seconds)."""
    return "link", now, now + LINK_LIFETIME + CLOCK_TOLERANCE


def _held_session(now: float) -> tuple[str, float, float]:
    """The values of _HOLDS for a session at `now` (Unix seconds)."""
    return "session", now, now + SESSION_LIFETIME + CLOCK_TOLERANCE


def _digests(token: str) -> tuple[bytes, ...]:
    """The digests under which a token may be stored: one for each role."""
    return tuple(token_digest(token, role) for role in Role)


def _session(row: Row) -> Session:
    digest, actor, role, began_at, expires_at = row
    return Session(session_id(digest), actor, Role(role), began_at, expires_at)
