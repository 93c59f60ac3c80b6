"""Pets, which the deprecated operation returns."""

from collections.abc import Sequence
from typing import Protocol

from petstore_server.domain.orders import Import
from petstore_server.domain.pets import Pet
from petstore_server.ports.audit import Actor


class Pets(Protocol):
    async def find(self, pet_id: int) -> Pet:
        """Return the pet. Raises PetNotFound."""

    async def find_many(self, ids: Sequence[int]) -> list[Pet]:
        """The pets that exist among these identifiers, in any order."""

    async def import_batch(self, pets: Sequence[Pet], import_id: str, actor: Actor) -> list[Import]:
        """Import the pets, replacing those of the same id (never REJECTED), in one transaction."""
