"""Forms: what was typed, and what is wrong with it, so that a page can show both next to the fields."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TypeVar

from petstore_server.domain.errors import Conflict, DomainError, InvalidInput

T = TypeVar("T")


class FormState:
    """The values of a form's fields, and what is wrong with some; a field that is not known is empty and right."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = defaultdict(str, values or {})
        self._errors: dict[str, str] = {}

    @property
    def is_right(self) -> bool:
        """Whether no field is wrong."""
        return not self._errors

    def error(self, name: str) -> str:
        """What is wrong with a field; empty if nothing is."""
        return self._errors.get(name, "")

    def reject(self, name: str, error: InvalidInput | Conflict | ValueError | str) -> None:
        """Note what is wrong with a field."""
        self._errors[name] = error.message if isinstance(error, DomainError) else str(error)

    def read(self, name: str, convert: Callable[[str], T]) -> T | None:
        """Convert a field's value. Where that raises InvalidInput or ValueError, note the reason and return None."""
        try:
            return convert(self.values[name])
        except (InvalidInput, ValueError) as error:
            self.reject(name, error)
            return None


def whole_number(text: str) -> int | None:
    """A number that may have separators; None for an empty text. Raises InvalidInput."""
    digits = text.replace(",", "").replace(" ", "")
    if not digits:
        return None
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise InvalidInput("Give a whole number, such as 600.")
    return int(digits)
