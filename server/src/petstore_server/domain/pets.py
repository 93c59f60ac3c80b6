"""Pets, which the deprecated operation returns (D16)."""

from typing import Any, NamedTuple

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.orders import integer_field, text_field


class Pet(NamedTuple):
    """A pet of the store. `name` and `tag` are None if they have no value."""

    id: int
    name: str | None = None
    tag: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the Pet of the interface as {name: value}, without the fields that have no value."""
        return {name: value for name, value in self._asdict().items() if value is not None}


PET_FIELDS = Pet._fields
"""The columns of a file."""


def pet_from_fields(fields: dict[str, Any]) -> Pet:
    """Build a pet from an import record. Raises InvalidField."""
    unknown = next((name for name in fields if name not in PET_FIELDS), None)
    if unknown is not None:
        raise InvalidField(unknown, f"is not a field of a pet; the fields are {', '.join(PET_FIELDS)}")
    pet_id = integer_field(fields, "id")
    if pet_id is None:
        raise InvalidField("id", "is missing; every pet needs one")
    return Pet(pet_id, text_field(fields, "name"), text_field(fields, "tag"))
