"""The record of good backups."""

from typing import Protocol

from petstore_server.ports.audit import Actor


class Backups(Protocol):
    async def record(self, file: str, actor: Actor) -> None:
        """Record that a good backup was made at `actor.at` in a file of this name."""

    async def last(self) -> float | None:
        """Return when the last good backup was made, in Unix seconds; None if there was none."""
