"""Pets, which the deprecated operation returns."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.imports import (
    ImportOutcome,
    Obstacle,
    Rejected,
    audit_change,
    evaluate,
    evaluate_pet_import,
    with_stored_fields,
)
from petstore_server.domain.pets import Pet
from petstore_server.store.engine import Part, bulk_transaction
from petstore_server.store.imports import add_batch, update_run
from petstore_server.store.statements import ExecuteMany, Query, Row, Work, one

# JSON in ASCII can hold every text that a file can: a column of text in PostgreSQL cannot hold U+0000.
_WRITE = """
    INSERT INTO petstore.pets (id, record) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET record = excluded.record
"""
_FIND = "SELECT record FROM petstore.pets WHERE id = ANY(%s::bigint[])"


class Pets(Part):
    async def find(self, pet_id: int) -> Pet:
        """Return the pet. Raises PetNotFound."""
        return one(await self.find_many([pet_id]), PetNotFound)

    async def find_many(self, ids: Sequence[int]) -> list[Pet]:
        """The pets that exist among these identifiers, in any order."""
        return [_pet(row) for row in await self._engine.query(_FIND, (list(ids),), short=len(ids) == 1)]

    @bulk_transaction
    def import_batch(
        self,
        pets: Sequence[Pet],
        import_id: str,
        actor: Actor,
        *,
        repeated: Collection[int] = (),
        missing: Collection[str] = (),
        file: str = "",
        rejected: Callable[[Sequence[ImportOutcome], Mapping[int, Obstacle]], Rejected] = lambda *_: Rejected(),
    ) -> Work[list[ImportOutcome]]:
        """Import the pets, replacing those of the same id (never REJECTED), in one transaction; else as of orders."""
        # Imports wait for one another: another one may bring pets that this one would take for missing.
        yield Query("SELECT one FROM petstore.store WHERE one = 1 FOR UPDATE")
        existing = {pet.id: pet for pet in map(_pet, (yield Query(_FIND, ([pet.id for pet in pets],))))}
        pets = with_stored_fields(pets, existing, missing)
        outcomes, changed = evaluate(pets, existing, evaluate_pet_import, repeated=repeated)
        if changed:
            yield ExecuteMany(_WRITE, [(pet.id, json.dumps(pet.fields())) for pet in changed.values()])
            yield from add_batch(import_id, actor, audit_change("pets", existing, changed, outcomes))
        yield from update_run("pets", import_id, actor, file, outcomes, rejected(outcomes, {}))
        return outcomes


def _pet(row: Row) -> Pet:
    return Pet(**json.loads(row[0]))
