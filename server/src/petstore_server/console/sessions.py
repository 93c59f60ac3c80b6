"""The session of a request, also while the store does not respond."""

from petstore_server.console.readings import read_within
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.sessions import Session
from petstore_server.store import Store

_SECONDS = 0.7  # for which a page waits for its session: half of its time
_MOST = 100


class Sessions:
    """Finds sessions in the store, and remembers them for as long as the store does not respond.

    So an operator still sees why. A session that ended meanwhile in the store is over as soon as that responds.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remembered: dict[str, Session] = {}

    async def find(self, token: str, now: float) -> Session | None:
        """The session of a token, None if there is none at `now` (Unix seconds).

        Raises ServiceUnavailable if the store does not respond and none is remembered.
        """
        found, _, problem = await read_within(self._store.sessions.find(token, now), _SECONDS)
        if problem:
            found = self._remembered.get(token)
            if found is None or found.expires_at <= now:
                raise ServiceUnavailable(problem.removesuffix("."))
            return found
        self.forget(token)
        if found is not None:
            self._remembered[token] = found
            if len(self._remembered) > _MOST:
                del self._remembered[next(iter(self._remembered))]
        return found

    def forget(self, token: str) -> None:
        """Forget a session that ended."""
        self._remembered.pop(token, None)
