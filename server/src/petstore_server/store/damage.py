"""Damage to the store: once it was seen, no process accepts a change."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from petstore_server.domain.errors import ServiceUnavailable, StatementFailed

DAMAGED = "; no change is accepted until a backup is restored and the servers are started again"
"""The end of a reason once damage was seen."""


class Damage:
    """Damage to the store that this process has seen, and saves in the store; or that another one has saved there."""

    SAVE = "UPDATE petstore.store SET damage = %s WHERE one = 1"

    def __init__(
        self, save: Callable[[str | None], Coroutine[Any, Any, object]], begin: Callable[[Any], object]
    ) -> None:
        """`save` executes SAVE; it raises ServiceUnavailable. `begin` runs the coroutine that does this."""
        self.save = save
        self.reason: str | None = None
        self._begin = begin
        self._saving: Any = None

    def seen(self, error: ServiceUnavailable) -> None:
        """Refuse changes from now on, here and, as soon as it is saved, in every process. `error` says what it is."""
        error.damaged = True
        if self.reason is None:
            self.reason = error.reason + DAMAGED
            self._saving = self._begin(self._save(self.reason))

    async def _save(self, reason: str) -> None:
        with suppress(ServiceUnavailable, StatementFailed):  # the damage may be where it would be saved
            await self.save(reason)

    def require_none(self, saved: str | None = None) -> None:
        """Raise ServiceUnavailable if there is damage, seen here or `saved` by another process."""
        self.reason = self.reason or saved
        if self.reason is not None:
            raise ServiceUnavailable(self.reason, damaged=True)

    async def close(self) -> None:
        """Finish saving it."""
        if self._saving is not None:
            await self._saving
