"""Pets in PostgreSQL. Implements `ports.Pets`."""

import json
from collections.abc import Sequence

from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.orders import Import
from petstore_server.domain.pets import Pet
from petstore_server.ports import Actor
from petstore_server.storage.entries import evaluate_pets, pets_entry
from petstore_server.storage.postgres.arrays import numbers, texts
from petstore_server.storage.postgres.audit import record
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import BATCH, Session

# One import of pets at a time: it may take in pets that another one would judge as not there.
_ALONE = "LOCK TABLE petstore.pets IN SHARE ROW EXCLUSIVE MODE"
_FIND_MANY = "SELECT record FROM petstore.pets WHERE id = ANY(%s::bigint[])"
_UPSERT = """
    INSERT INTO petstore.pets (id, record) SELECT id, record FROM unnest(%s::bigint[], %s::text[]) AS pet (id, record)
    ON CONFLICT (id) DO UPDATE SET record = excluded.record
"""


def pet_record(pet: Pet) -> str:
    """The pet as it is kept: JSON in ASCII."""
    return json.dumps(pet.fields(), separators=(",", ":"))


def pet_of(record: str) -> Pet:
    """The pet that `pet_record` wrote down."""
    return Pet(**json.loads(record))


class PostgresPets:
    """The pets of one store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, pet_id: int) -> Pet:
        """The pet. Raises PetNotFound."""
        found = await self._pool.rows("SELECT record FROM petstore.pets WHERE id = %s", (pet_id,))
        if not found:
            raise PetNotFound
        return pet_of(found[0][0])

    async def find_many(self, ids: Sequence[int]) -> list[Pet]:
        """The pets that exist among these identifiers."""
        return [pet_of(row[0]) for row in await self._pool.rows(_FIND_MANY, (numbers(ids),))]

    async def import_batch(self, pets: Sequence[Pet], import_id: str, actor: Actor) -> list[Import]:
        """Take the pets in, replacing those of the same id, in one transaction with one audit entry."""
        if not pets:
            return []

        async def take_in(session: Session) -> list[Import]:
            await session.execute(_ALONE)
            found = [pet_of(row[0]) for row in await session.rows(_FIND_MANY, (numbers(pet.id for pet in pets),))]
            before = {pet.id: pet for pet in found}
            decisions, changed = evaluate_pets(before, pets)
            await session.execute(
                _UPSERT, (numbers(pet.id for pet in changed), texts(pet_record(pet) for pet in changed))
            )
            await record(session, actor, "pets.import", import_id, *pets_entry(before, changed, decisions))
            return decisions

        return await self._pool.transaction(take_in, BATCH)
