"""Pets in SQLite. Implements `ports.Pets`."""

import json
from collections.abc import Sequence

import apsw

from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.orders import Import
from petstore_server.domain.pets import Pet
from petstore_server.ports import Actor
from petstore_server.storage.entries import evaluate_pets, pets_entry
from petstore_server.storage.sqlite.audit import record
from petstore_server.storage.sqlite.connections import rows
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.writer import Writer

_FIND_MANY = "SELECT id, name, tag FROM pets WHERE id IN (SELECT value FROM json_each(?))"


class SqlitePets:
    """The pets of one store."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    async def find(self, pet_id: int) -> Pet:
        """The pet. Raises PetNotFound."""
        found = self._reader.now("SELECT id, name, tag FROM pets WHERE id = ?", (pet_id,))
        if not found:
            raise PetNotFound
        return Pet(*found[0])

    async def find_many(self, ids: Sequence[int]) -> list[Pet]:
        """The pets that exist among these identifiers."""
        found = await self._reader.run(lambda connection: rows(connection, _FIND_MANY, (json.dumps(list(ids)),)))
        return [Pet(*row) for row in found]

    async def import_batch(self, pets: Sequence[Pet], import_id: str, actor: Actor) -> list[Import]:
        """Take the pets in, replacing those of the same id, in one transaction with one audit entry."""
        if not pets:
            return []
        wanted = json.dumps([pet.id for pet in pets])

        def take_in(connection: apsw.Connection) -> list[Import]:
            found = rows(connection, _FIND_MANY, (wanted,))
            before = {row[0]: Pet(*row) for row in found}
            decisions, changed = evaluate_pets(before, pets)
            connection.executemany(
                "INSERT OR REPLACE INTO pets (id, name, tag) VALUES (?, ?, ?)",
                [(pet.id, pet.name, pet.tag) for pet in changed],
            )
            record(connection, actor, "pets.import", import_id, *pets_entry(before, changed, decisions))
            return decisions

        return await self._writer.run(take_in)
