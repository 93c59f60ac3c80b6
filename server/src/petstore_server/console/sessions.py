"""The session of a request, also while the store does not respond."""

from petstore_server.console.readings import read_within
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.sessions import Session, token_digest
from petstore_server.operations.sessions import find_session
from petstore_server.store import Store

_SECONDS = 0.7  # for which a page waits for its session: half of its time
_MOST = 100


class Sessions:
    """Finds sessions in the store, and remembers them for as long as the store does not respond.

    So an operator still sees why. A session that ended meanwhile in the store is over as soon as that responds.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remembered: dict[bytes, Session] = {}

    async def find(self, token: str, now: float) -> Session | None:
        """The session of a token, None if there is none at `now` (Unix seconds).

        Raises ServiceUnavailable if the store does not respond and none is remembered.
        """
        digest = token_digest(token)
        found, _, problem = await read_within(find_session(self._store, token, now), _SECONDS)
        if problem:
            found = self._remembered.get(digest)
            if found is None or found.expires_at <= now:
                raise ServiceUnavailable(problem.removesuffix("."))
            return found
        self.forget(token)
        if found is not None:
            self._remembered[digest] = found
            if len(self._remembered) > _MOST:
                del self._remembered[next(iter(self._remembered))]
        return found

    def forget(self, token: str) -> None:
        """Forget a session that ended."""
        self._remembered.pop(token_digest(token), None)
