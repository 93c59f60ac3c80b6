"""Pets, which the deprecated operation returns (D16)."""

from dataclasses import dataclass
from typing import Any

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.orders import integer_field, text_field

PET_FIELDS = ("id", "name", "tag")  # in the order of a file's columns


@dataclass(frozen=True, slots=True)
class Pet:
    """A pet of the store. `name` and `tag` are None if they have no value."""

    id: int
    name: str | None = None
    tag: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the Pet of the interface as {name: value}, without the fields that have no value."""
        values = {"id": self.id, "name": self.name, "tag": self.tag}
        return {name: value for name, value in values.items() if value is not None}


def pet_from_fields(fields: dict[str, Any]) -> Pet:
    """Build a pet from an import record. Raises InvalidField."""
    unknown = next((name for name in fields if name not in PET_FIELDS), None)
    if unknown is not None:
        raise InvalidField(unknown, f"is not a field of a pet; the fields are {', '.join(PET_FIELDS)}")
    pet_id = integer_field(fields, "id")
    if pet_id is None:
        raise InvalidField("id", "is missing; every pet needs one")
    return Pet(pet_id, text_field(fields, "name"), text_field(fields, "tag"))
