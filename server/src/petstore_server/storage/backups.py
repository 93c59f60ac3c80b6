"""The record of backups. Implements `ports.Backups`."""

from petstore_server.ports import Actor
from petstore_server.storage.audit import Change, record
from petstore_server.storage.statements import Command, Engine, Work

_RECORD = "UPDATE petstore.store SET backed_up_at = %s"
_LAST = "SELECT backed_up_at FROM petstore.store"


class Backups:
    """The backups that were made of one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def record(self, file: str, actor: Actor) -> None:
        await self._engine.transaction(lambda: _record(file, actor))

    async def last(self) -> float | None:
        at: float | None = (await self._engine.query(_LAST))[0][0]
        return at


def _record(file: str, actor: Actor) -> Work[None]:
    yield Command(_RECORD, (actor.at,))
    yield record(actor, "store.backup", "store", Change(None, {"file": file}))
