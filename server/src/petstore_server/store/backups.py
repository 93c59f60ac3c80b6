"""The record of backups."""

from petstore_server.domain.audit import Actor, Change
from petstore_server.store.audit import record
from petstore_server.store.engine import Command, Part, Work, transaction


class Backups(Part):
    """The backups that were made of one store."""

    @transaction
    def record(self, file: str, actor: Actor) -> Work[None]:
        """Record that a good backup was made at `actor.at` in a file of this name."""
        yield Command("UPDATE petstore.store SET backed_up_at = %s", (actor.at,))
        yield record(actor, "store.backup", "store", Change(None, {"file": file}))

    async def last(self) -> float | None:
        """Return when the last good backup was made, in Unix seconds; None if there was none."""
        [(at,)] = await self._engine.query("SELECT backed_up_at FROM petstore.store")
        return None if at is None else float(at)
