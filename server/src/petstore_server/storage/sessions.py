"""Sign-in links and sessions of the operator console. Implements `ports.Sessions`."""

from petstore_server.domain.sessions import Session
from petstore_server.ports import Actor
from petstore_server.storage.audit import Change, record
from petstore_server.storage.statements import Command, Engine, Query, Work, only

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


class Sessions:
    """The console's sessions of one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add_link(self, digest: bytes, expires_at: float, actor: Actor) -> None:
        await self._engine.transaction(lambda: _add_link(digest, expires_at, actor))

    async def sign_in(self, link: bytes, session: bytes, expires_at: float, now: float) -> Session | None:
        return await self._engine.transaction(lambda: _sign_in(link, session, expires_at, now))

    async def find(self, digest: bytes, now: float) -> Session | None:
        found = await self._engine.query(_FIND, (digest, now))
        return Session(*found[0]) if found else None

    async def extend(self, digest: bytes, expires_at: float) -> None:
        await self._engine.transaction(lambda: only(Command(_EXTEND, (expires_at, digest))))

    async def end(self, digest: bytes) -> None:
        await self._engine.transaction(lambda: only(Command(_END, (digest,))))

    async def end_all(self, actor: Actor) -> int:
        return await self._engine.transaction(lambda: _end_all(actor))


def _add_link(digest: bytes, expires_at: float, actor: Actor) -> Work[None]:
    yield Command(_FORGET_EXPIRED, (actor.at,))
    yield Command(_ADD, (digest, "link", actor.name, expires_at))
    yield record(actor, "console.create_link", _SUBJECT, Change(None, {"expires_at": expires_at}))


def _sign_in(link: bytes, session: bytes, expires_at: float, now: float) -> Work[Session | None]:
    used = yield Query(_USE_LINK, (link, now))
    if not used:
        return None
    actor = used[0][0]
    yield Command(_ADD, (session, "session", actor, expires_at))
    yield record(Actor(actor, now), "console.sign_in", _SUBJECT, Change(None, None))
    return Session(actor, expires_at)


def _end_all(actor: Actor) -> Work[int]:
    ended = yield Query(_END_ALL)
    sessions = sum(str(kind) == "session" for (kind,) in ended)
    yield record(actor, "console.end_sessions", _SUBJECT, Change(None, {"sessions": sessions}))
    return sessions
