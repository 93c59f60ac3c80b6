"""Access to the operator console: create sign-in links, start, find and end sessions."""

from typing import NamedTuple

from petstore_server.domain.audit import Actor
from petstore_server.domain.sessions import LINK_LIFETIME, SESSION_LIFETIME, Session, token_digest
from petstore_server.store import Store


class SignInLink(NamedTuple):
    """A sign-in link: its token, which is stored nowhere, and its end in Unix seconds."""

    token: str
    expires_at: float


async def create_link(store: Store, token: str, actor: Actor) -> SignInLink:
    """Allow one sign-in as `actor` with `token`, a random text of TOKEN_BYTES bytes."""
    expires_at = actor.at + LINK_LIFETIME
    await store.sessions.add_link(token_digest(token), expires_at, actor)
    return SignInLink(token, expires_at)


async def sign_in(store: Store, link_token: str, session_token: str, now: float) -> Session | None:
    """Use up a link and start a session; None if the link was used before, has expired or never existed."""
    expires_at = now + SESSION_LIFETIME
    return await store.sessions.sign_in(token_digest(link_token), token_digest(session_token), expires_at, now)


async def find_session(store: Store, token: str, now: float) -> Session | None:
    """Find the session of a token and extend it; None if there is none at `now` (Unix seconds)."""
    digest = token_digest(token)
    session = await store.sessions.find(digest, now)
    if session is not None and session.needs_extension(now):
        await store.sessions.extend(digest, now + SESSION_LIFETIME)
    return session


async def sign_out(store: Store, token: str) -> None:
    """End one session."""
    await store.sessions.end(token_digest(token))


async def end_sessions(store: Store, actor: Actor) -> int:
    """End all sessions and revoke all unused links; return the number of sessions."""
    return await store.sessions.end_all(actor)
