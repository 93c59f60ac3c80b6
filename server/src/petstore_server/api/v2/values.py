"""Kinds of values in parameters and bodies: what is allowed, how it is read, and its schema in the contract.

Each kind reads a value from the text of a parameter or from parsed JSON. Both raise ValueError; `allowed` completes the
sentence "… must be".
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from petstore_server.domain.orders import INT64_MAX, INT64_MIN, is_int64
from petstore_server.domain.search import microseconds
from petstore_server.domain.timestamps import parse_timestamp

Value = TypeVar("Value")

_TIMESTAMP = (
    "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]"
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
"""The form of a timestamp, for the contract: RFC 3339. `parse_timestamp` also checks that the day exists, and that the
time is within the years 1 to 9999 in UTC.
"""

_FINER = re.compile(r"(\.[0-9]{6})[0-9]+")
_OFFSET = re.compile(r"([+-][0-9]{2})([0-9]{2})\Z")


class Kind(Protocol):
    @property
    def allowed(self) -> str:
        """What a value must be, for messages."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the value, as the contract has it."""

    def from_text(self, text: str) -> Any:
        """Read a parameter. Raises ValueError."""

    def from_json(self, value: object) -> Any:
        """Read a member of a body. Raises ValueError."""


class _OfText(ABC, Generic[Value]):
    """A kind whose values are texts in JSON too, with the same content as in a parameter."""

    @abstractmethod
    def from_text(self, text: str) -> Value: ...

    def from_json(self, value: object) -> Value:
        return self.from_text(_text(value))


@dataclass(frozen=True)
class Choice(_OfText[str]):
    """One of several texts."""

    values: Sequence[str]

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.values)}"

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.values)}

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

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "format": "int64", "minimum": self.minimum, "maximum": self.maximum}

    def from_text(self, text: str) -> int:
        if not is_int64(text):
            raise ValueError(self.allowed)
        return self.from_json(int(text))

    def from_json(self, value: object) -> int:
        if type(value) is not int or not self.minimum <= value <= self.maximum:
            raise ValueError(self.allowed)
        return value


@dataclass(frozen=True)
class Boolean:
    """`true` or `false`."""

    allowed: str = field(default="true or false", init=False)

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def from_text(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError(self.allowed)
        return text == "true"

    def from_json(self, value: object) -> bool:
        if type(value) is not bool:
            raise ValueError(self.allowed)
        return value


@dataclass(frozen=True)
class Timestamp(_OfText[int]):
    """An RFC 3339 date-time with an offset, read as Unix microseconds.

    Many libraries write digits finer than a microsecond, which are cut off, or an offset without its colon.
    """

    allowed: str = field(
        default="an RFC 3339 date-time with an offset, in the years 1 to 9999 in UTC, such as 2026-11-01T10:00:00Z",
        init=False,
    )

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "date-time", "pattern": f"^{_TIMESTAMP}$"}

    def from_text(self, text: str) -> int:
        return microseconds(parse_timestamp(_OFFSET.sub(r"\1:\2", _FINER.sub(r"\1", text))))


@dataclass(frozen=True)
class Text(_OfText[str]):
    """A text that a pattern describes."""

    pattern: str
    allowed: str

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.pattern}$"}

    def from_text(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(self.allowed)
        return text


@dataclass(frozen=True)
class Opaque(_OfText[str]):
    """A text that the service issued and reads itself; here it only must not be empty."""

    allowed: str
    longest: int

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": self.longest}

    def from_text(self, text: str) -> str:
        if not text:
            raise ValueError(self.allowed)
        return text


_SAFE_NAME = re.compile(r"[A-Za-z$_][A-Za-z0-9$_.\[\]-]{0,31}", re.ASCII)


def shown_name(name: str) -> str:
    """A name that a client sent, for a message: only if it is short and plain. An API key is longer than that."""
    return f"'{name}'" if _SAFE_NAME.fullmatch(name) else "a name"


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError("a text")
    return value
