"""How PostgreSQL stores pets. Implements `storage.pets.PetTable`."""

import json
from collections.abc import Sequence

from petstore_server.domain.pets import Pet
from petstore_server.storage.postgres.arrays import numbers, texts
from petstore_server.storage.statements import Command, Query, Row, Statement

_UPSERT = """
    INSERT INTO petstore.pets (id, record) SELECT id, record FROM unnest(%s::bigint[], %s::text[]) AS pet (id, record)
    ON CONFLICT (id) DO UPDATE SET record = excluded.record
"""


class PostgresPets:
    """Pets as JSON, which can hold every text that a file can: a column of text cannot hold U+0000."""

    def lock(self) -> Statement:
        """Keep other imports of pets waiting."""
        return Command("LOCK TABLE petstore.pets IN SHARE ROW EXCLUSIVE MODE")

    def find(self, ids: Sequence[int]) -> Query:
        return Query("SELECT record FROM petstore.pets WHERE id = ANY(%s::bigint[])", (numbers(ids),))

    def pet(self, row: Row) -> Pet:
        return Pet(**json.loads(row[0]))

    def write(self, pets: Sequence[Pet]) -> Statement:
        return Command(_UPSERT, (numbers(pet.id for pet in pets), texts(pet_record(pet) for pet in pets)))


def pet_record(pet: Pet) -> str:
    """Return the pet as it is stored: JSON in ASCII."""
    return json.dumps(pet.fields(), separators=(",", ":"))
