"""Forms, filters, positions and links of pages."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from petstore_server.domain.audit import AuditPosition
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.imports import ImportPosition
from petstore_server.domain.lists import Position
from petstore_server.domain.orders import INT64_MAX, INT64_MIN

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
P = TypeVar("P", AuditPosition, ImportPosition, Position)

_PATH = re.compile(r'/(?!sign-|/)[^\s";,\\]{0,1000}')  # in characters that a cookie can hold


class Form:
    """The fields of a form, and what is wrong with some; a field that was not submitted is empty and valid.

    `errors` has what is wrong, by field.
    """

    content: bytes
    """The form as it was submitted, if it was."""

    prefix: str
    """Begins the ids of its fields on a page, which sets it."""

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self.fields = [(name.replace("\r\n", "\n"), value) for name, value in fields]  # browsers send CRLF for LF
        self.values = defaultdict(str, ((name, value.strip()) for name, value in self.fields))
        self.errors = dict[str, str]()

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def continue_from(self, seen: str, now: Mapping[str, str], mine: Collection[str]) -> None:
        """Let the form change another version: the fields that it does not change have their values of now."""
        self.values |= {"seen": seen, **{name: value for name, value in now.items() if name not in mine}}

    def all(self, name: str) -> list[str]:
        """All values of a field that may occur several times."""
        return [value for field, value in self.fields if field == name]

    @property
    def given(self) -> dict[str, str]:
        """The values of the fields that have one."""
        return {name: value for name, value in self.values.items() if value}

    def read(self, name: str, convert: Callable[[str], T]) -> T | None:
        """Convert a field's value. Where that raises InvalidInput or ValueError, note the reason and return None."""
        try:
            return convert(self.values[name])
        except (InvalidInput, ValueError) as error:
            self.errors[name] = str(error)
            return None


def one_of(kind: type[E], text: str) -> E:
    """A member by its value. Raises InvalidInput, which names all."""
    if text not in list(kind):
        raise InvalidInput(f"Choose one of {', '.join(kind)}.")
    return kind(text)


def changed_meanwhile(name: str, value: str) -> str:
    """What is wrong with a field whose value another operator has changed to this one."""
    now = f"is “{value}” now" if value else "is empty now"
    return f"This was changed meanwhile, so nothing was done. The {name} {now}; submit the form again to replace that."


def require_storable(texts: Iterable[str]) -> None:
    """Raises InvalidInput for a text that one of the engines cannot keep or look for."""
    if any("\0" in text for text in texts):
        raise InvalidInput("A text holds the character U+0000; remove it.")


def whole_number(text: str) -> int | None:
    """A number that may have separators; None for an empty text. Raises InvalidInput."""
    digits = text.replace(",", "").replace(" ", "")
    if digits and not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise InvalidInput("Give a whole number, such as 600.")
    return int(digits) if digits else None


def parse_position(text: str, kind: type[P]) -> P | None:
    """A position from a link of the console; an invalid one starts from the beginning."""
    try:
        position = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError):
        return None
    return position if all(map(_is_comparable, position)) else None


def _is_comparable(part: object) -> bool:
    """Whether both engines can compare stored values with this."""
    if isinstance(part, int):
        return INT64_MIN <= part <= INT64_MAX
    return not isinstance(part, str) or "\0" not in part


def query_link(given: Mapping[str, str], **more: str | int) -> str:
    """A link to the same list with these filters; those without a value are left out."""
    return "?" + urlencode({name: value for name, value in {**given, **more}.items() if value != ""})


def position_links(
    given: Mapping[str, str], name: str, here: object, later: AuditPosition | ImportPosition | Position | None
) -> dict[str, Any]:
    """Links of a list: to its first page, if `here` is another position, and to the one at `later`, if there is one."""
    position = "" if later is None else msgspec.json.encode(later).decode()
    return {
        "first_link": query_link(given) if here else None,
        "next_link": query_link(given, **{name: position}) if position else None,
    }


def is_path(text: str) -> bool:
    """Whether a text is the path, below the console's, of one of its pages other than those for signing in."""
    return text.isascii() and text.isprintable() and _PATH.fullmatch(text) is not None


def account_path(name: str) -> str:
    """The path of an account below the console's."""
    return f"/accounts/{quote(name, safe='')}"
