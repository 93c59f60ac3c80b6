"""How SQLite stores pets. Implements `storage.pets.PetTable`."""

import json
from collections.abc import Sequence

from petstore_server.domain.pets import Pet
from petstore_server.storage.statements import Commands, Query, Row, Statement


class SqlitePets:
    """Pets in columns; absent values are NULL."""

    def lock(self) -> None:
        """A transaction has the whole store locked already."""

    def find(self, ids: Sequence[int]) -> Query:
        return Query(
            "SELECT id, name, tag FROM pets WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
        )

    def pet(self, row: Row) -> Pet:
        return Pet(*row)

    def write(self, pets: Sequence[Pet]) -> Statement:
        return Commands(
            "INSERT OR REPLACE INTO pets (id, name, tag) VALUES (?, ?, ?)",
            [(pet.id, pet.name, pet.tag) for pet in pets],
        )
