"""Kinds of values in parameters and bodies: what is allowed, and how it is read.

Each kind reads a value from the text of a parameter; those of fields also read one from parsed JSON. Both raise
ValueError; `allowed` completes the sentence "… must be".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from petstore_server.domain.orders import INT64_MAX, INT64_MIN, is_int64
from petstore_server.domain.timestamps import microseconds, parse_timestamp

_FINER = re.compile(r"(\.[0-9]{6})[0-9]+")
_OFFSET = re.compile(r"([+-][0-9]{2})([0-9]{2})\Z")


@dataclass(frozen=True)
class Choice:
    """One of several texts."""

    values: Sequence[str]

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.values)}"

    def from_text(self, text: str) -> str:
        if text not in self.values:
            raise ValueError(self.allowed)
        return text


@dataclass(frozen=True)
class Integer:
    """A whole number in plain digits, as D4 has it: no sign +, leading zero, fraction or exponent."""

    minimum: int = INT64_MIN
    maximum: int = INT64_MAX

    @property
    def allowed(self) -> str:
        if self.maximum < INT64_MAX:
            return f"a whole number from {self.minimum} to {self.maximum}"
        least = f" of at least {self.minimum}" if self.minimum > INT64_MIN else ""
        return f"a whole number{least} in plain digits that fits 64 bits"

    def from_text(self, text: str) -> int:
        if not is_int64(text):
            raise ValueError(self.allowed)
        return self.from_json(int(text))

    def from_json(self, value: object) -> int:
        if type(value) is not int or not self.minimum <= value <= self.maximum:
            raise ValueError(self.allowed)
        return value


class Boolean:
    """`true` or `false`."""

    allowed = "true or false"

    def from_text(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError(self.allowed)
        return text == "true"


class Timestamp:
    """An RFC 3339 date-time with an offset, read as Unix microseconds.

    Many libraries write digits finer than a microsecond, which are cut off, or an offset without its colon.
    """

    allowed = "an RFC 3339 date-time with an offset, in the years 1 to 9999 in UTC, such as 2026-11-01T10:00:00Z"

    def from_text(self, text: str) -> int:
        return microseconds(parse_timestamp(_OFFSET.sub(r"\1:\2", _FINER.sub(r"\1", text))))

    def from_json(self, value: object) -> int:
        if type(value) is not str:
            raise ValueError(self.allowed)
        return self.from_text(value)


@dataclass(frozen=True)
class Text:
    """A text that a pattern describes."""

    pattern: str
    allowed: str

    def from_text(self, text: str) -> str:
        if re.fullmatch(self.pattern, text, re.DOTALL) is None:
            raise ValueError(self.allowed)
        return text


FieldKind = Integer | Timestamp
Kind = FieldKind | Boolean | Choice | Text

_SAFE_NAME = re.compile(r"[A-Za-z$_][A-Za-z0-9$_.\[\]-]{0,31}", re.ASCII)


def shown_name(name: str) -> str:
    """A name that a client sent, for a message: only if it is short and plain. An API key is longer than that."""
    return f"'{name}'" if _SAFE_NAME.fullmatch(name) else "a name"
