"""What the interface returns: orders and pets, as the contract describes them."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, field

Moment = Annotated[datetime, Meta(tz=True)]
"""A moment that says its offset: without one it would be anybody's guess."""


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An order. A field that the order does not have is None; fields that this version does not know are left out.

    `ship_date` is the expected or actual date, an aware datetime to the microsecond. Integers are exact.
    """

    id: int | None = None
    pet_id: int | None = field(default=None, name="petId")
    quantity: int | None = None
    ship_date: Moment | None = field(default=None, name="shipDate")
    complete: bool | None = None


class Pet(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pet. A field that the pet does not have is None."""

    id: int | None = None
    name: str | None = None
    tag: str | None = None
