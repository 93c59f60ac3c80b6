"""Pets. Implements `ports.Pets`."""

from collections.abc import Sequence
from typing import Protocol

from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.orders import Import
from petstore_server.domain.pets import Pet, evaluate_pet_import
from petstore_server.ports import Actor
from petstore_server.storage.audit import record
from petstore_server.storage.imports import audit_change, evaluate
from petstore_server.storage.statements import Engine, Query, Row, Statement, Work


class PetTable(Protocol):
    """How an engine stores pets."""

    def lock(self) -> Statement | None:
        """Keep other imports of pets waiting: they may bring pets that this one takes for missing."""

    def find(self, ids: Sequence[int]) -> Query:
        """Select the pets with these identifiers."""

    def pet(self, row: Row) -> Pet:
        """Return the pet of a selected row."""

    def write(self, pets: Sequence[Pet]) -> Statement:
        """Insert the pets, or replace those with the same identifiers."""


class Pets:
    """The pets of one store."""

    def __init__(self, engine: Engine, table: PetTable) -> None:
        self._engine = engine
        self._table = table

    async def find(self, pet_id: int) -> Pet:
        rows = await self._engine.query(*self._table.find([pet_id]))
        if not rows:
            raise PetNotFound
        return self._table.pet(rows[0])

    async def find_many(self, ids: Sequence[int]) -> list[Pet]:
        return [self._table.pet(row) for row in await self._engine.query(*self._table.find(ids))]

    async def import_batch(self, pets: Sequence[Pet], import_id: str, actor: Actor) -> list[Import]:
        if not pets:
            return []
        return await self._engine.transaction(lambda: _import(self._table, pets, import_id, actor), bulk=True)


def _import(table: PetTable, pets: Sequence[Pet], import_id: str, actor: Actor) -> Work[list[Import]]:
    lock = table.lock()
    if lock is not None:
        yield lock
    rows = yield table.find([pet.id for pet in pets])
    existing = {pet.id: pet for pet in map(table.pet, rows)}
    outcomes, changed = evaluate(pets, existing, evaluate_pet_import)
    if changed:
        yield table.write(list(changed.values()))
    yield record(actor, "pets.import", import_id, audit_change("pets", existing, changed, outcomes))
    return outcomes
