"""Queries and headers of version 2: the parameters of each operation, in tables (D20).

The tables are the one description: the checks and their messages follow from them, and tests compare them with the
contract. Queries are strict: whatever a table does not allow is an error.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from petstore_server.api.errors import InvalidParameter
from petstore_server.api.representation import etag_of
from petstore_server.domain.changes import StoredOrder
from petstore_server.domain.lists import DEFAULT_LIMIT, MAX_LIMIT, Sort, SortField
from petstore_server.domain.orders import (
    INT64_MAX,
    INT64_MIN,
    REFERENCE_FORM,
    STATUSES,
    check_account,
    check_reference,
    is_int64,
)
from petstore_server.domain.timestamps import microseconds, parse_timestamp
from petstore_server.domain.usage import Granularity

MAX_WAIT = 30  # seconds for which a request for changes is held

_FINER = re.compile(r"(\.[0-9]{6})[0-9]+")
_OFFSET = re.compile(r"([+-][0-9]{2})([0-9]{2})\Z")
_TAG = r'(?:W/)?"([!#-~\x80-\xff]*)"'
_TAGS = re.compile(rf"[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*")  # with empty elements (RFC 9110, 5.6.1)
_SAFE_NAME = re.compile(r"[A-Za-z$_][A-Za-z0-9$_.\[\]-]{0,31}", re.ASCII)


# Kinds of values. Each reads a value from a text, or raises ValueError (Choice: KeyError); `allowed` ends "… must be".


@dataclass(frozen=True)
class Choice:
    """One of several texts, which have these values."""

    values: Mapping[str, Any]

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.values)}"

    def from_text(self, text: str) -> Any:
        return self.values[text]


@dataclass(frozen=True)
class Choices:
    """Several of these texts, which have these values, in a list; neither its order nor repetitions matter."""

    values: Mapping[str, Any]

    @property
    def allowed(self) -> str:
        return f"a list of some of {', '.join(self.values)}"

    def check(self, value: object) -> tuple[Any, ...]:
        """The values of a list of texts, in the order of `values`. Raises ValueError."""
        if type(value) is not list or not all(type(text) is str and text in self.values for text in value):
            raise ValueError(self.allowed)
        return tuple(self.values[text] for text in self.values if text in value)


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
        return self.check(int(text) if is_int64(text) else None)

    def check(self, value: object) -> int:
        """Return the value if it is one of these numbers. Raises ValueError."""
        if type(value) is not int or not self.minimum <= value <= self.maximum:
            raise ValueError(self.allowed)
        return value


class Timestamp:
    """An RFC 3339 date-time with an offset, read as Unix microseconds.

    Many libraries write digits finer than a microsecond, which are cut off, or an offset without its colon.
    """

    allowed = "an RFC 3339 date-time with an offset, in the years 1 to 9999 in UTC, such as 2026-11-01T10:00:00Z"

    def from_text(self, text: str) -> int:
        return microseconds(parse_timestamp(_OFFSET.sub(r"\1:\2", _FINER.sub(r"\1", text))))


@dataclass(frozen=True)
class Text:
    """A text that a pattern describes."""

    pattern: str
    allowed: str

    def from_text(self, text: str) -> str:
        if re.fullmatch(self.pattern, text, re.DOTALL) is None:
            raise ValueError(self.allowed)
        return text


@dataclass(frozen=True)
class Reference:
    """A reference of an order; one to look for may be of an earlier release (`stored`)."""

    stored: bool = False

    allowed = REFERENCE_FORM

    def from_text(self, text: str) -> str:
        return check_reference(text, stored=self.stored)


class Boolean:
    """true or false."""

    allowed = "true or false"

    def from_text(self, text: str) -> bool:
        return {"true": True, "false": False}[text]

    def check(self, value: object) -> bool:
        """Return the value if it is one of the two. Raises ValueError."""
        if type(value) is not bool:
            raise ValueError(self.allowed)
        return value


class AccountName:
    """The name of an account, which may not exist."""

    allowed = "the name of an account"

    def from_text(self, text: str) -> str:
        return check_account(text)


Kind = Choice | Integer | Timestamp | Text | Reference | Boolean | AccountName


class Parameter(NamedTuple):
    """One parameter of a query, or a header. A repeatable one is read as a list. `default` None: no restriction."""

    name: str
    kind: Kind
    default: Any = None
    repeatable: bool = False

    def read(self, texts: Sequence[str]) -> Any:
        """The value, from the texts that were given for it. Raises InvalidParameter."""
        if len(texts) > 1 and not self.repeatable:
            raise InvalidParameter(f"'{self.name}' is given more than once; give it once.")
        try:
            values = [self.kind.from_text(text) for text in texts]
        except (KeyError, ValueError):
            several = "; repeat the parameter for several" if self.repeatable else ""
            raise InvalidParameter(f"'{self.name}' must be {self.kind.allowed}{several}.") from None
        return values if self.repeatable else values[0]

    def from_query(self, values: Sequence[bytes]) -> Any:
        """The value, from what a query has for it. Raises InvalidParameter."""
        return self.read([decoded(value, plus="+" if isinstance(self.kind, Timestamp) else " ") for value in values])


class Parameters:
    """The parameters of one operation. `ranges` are pairs of names, of which the first may not be after the second."""

    def __init__(self, *parameters: Parameter, ranges: Sequence[tuple[str, str]] = ()) -> None:
        self.all = {parameter.name: parameter for parameter in parameters}
        self.ranges = ranges
        self._defaults = {parameter.name: parameter.default for parameter in parameters}

    def read(self, query: bytes) -> Mapping[str, Any]:
        """The values by name, with defaults, from the query of a request target. Raises InvalidParameter.

        `+` is a space, as most libraries write one; in a timestamp it is the sign of the offset, also without escaping.
        """
        if not query:  # the most common one, at a tenth of the cost
            return self._defaults
        given: dict[str, list[bytes]] = {}
        for pair in filter(None, query.split(b"&")):
            name, _, value = pair.partition(b"=")
            given.setdefault(decoded(name), []).append(value)
        unknown = next((name for name in given if name not in self.all), None)
        if unknown is not None:
            known = f"they are {', '.join(self.all)}" if self.all else "it has none"
            raise InvalidParameter(
                f"The query contains {shown(unknown)}, which is not a parameter of this operation; {known}."
            )
        values = self._defaults | {name: self.all[name].from_query(several) for name, several in given.items()}
        for start, end in self.ranges:
            if values[start] is not None and values[end] is not None and values[start] > values[end]:
                raise InvalidParameter(f"'{start}' is after '{end}'; swap the two or leave one out.")
        return values


def decoded(text: bytes, plus: str = " ") -> str:
    """A name or value of a query, percent-decoded. `plus` is what `+` stands for. Raises InvalidParameter."""
    try:
        return unquote(text.decode("ascii").replace("+", plus), errors="strict")
    except UnicodeDecodeError:
        raise InvalidParameter("The query is not percent-encoded UTF-8; encode each name and value.") from None


def shown(name: str) -> str:
    """A name that a client sent, for a message: only if it is short and plain. An API key is longer than that."""
    return f"'{name}'" if _SAFE_NAME.fullmatch(name) else "a name"


NO_PARAMETERS = Parameters()

_SORTS = {sign + field: Sort(field, sign == "-") for field in SortField for sign in ("", "-")}

LIST_ORDERS = Parameters(
    Parameter("status", Choice(STATUSES), repeatable=True),
    Parameter("petId", Integer()),
    Parameter("complete", Boolean()),
    Parameter("shipDateFrom", Timestamp()),
    Parameter("shipDateTo", Timestamp()),
    Parameter("updatedFrom", Timestamp()),
    Parameter("reference", Reference(stored=True), repeatable=True),
    Parameter("sort", Choice(_SORTS), default=_SORTS["id"]),
    Parameter("limit", Integer(1, MAX_LIMIT), default=DEFAULT_LIMIT),
    Parameter("cursor", Text(".+", "the nextCursor of a page")),
    ranges=[("shipDateFrom", "shipDateTo")],
)

NOW = "now"
LIST_CHANGES = Parameters(
    Parameter("after", Text(".+", f"the 'next' of a response, or '{NOW}'")),
    Parameter("limit", Integer(1, MAX_LIMIT), default=DEFAULT_LIMIT),
    Parameter("wait", Integer(0, MAX_WAIT), default=0),
)

GET_USAGE = Parameters(
    Parameter("granularity", Choice({str(period): period for period in Granularity}), default=Granularity.HOUR),
    Parameter("from", Timestamp()),
    Parameter("to", Timestamp()),
    ranges=[("from", "to")],
)

# A header (draft-ietf-httpapi-idempotency-key-header).
IDEMPOTENCY_KEY = Parameter("Idempotency-Key", Text("[!-~]{1,255}", "1 to 255 visible ASCII characters"))

IF_MATCH = Parameter("If-Match", Text(rf"\*|{_TAGS.pattern}", "an ETag of getOrder in quotes, or *"))
IF_NONE_MATCH = Parameter("If-None-Match", Text(r"\*", "*"))


def matches(if_match: str, *, sees_account: bool) -> Callable[[StoredOrder], bool]:
    """Whether an order has one of the ETags of If-Match, as a caller who may see its account got it (RFC 9110, 13.1.1).

    Proxies make a tag weak, or add `-gzip`: only the rest of it is compared. The text is one of IF_MATCH.
    """
    tags = {tag.removesuffix("-gzip") for tag in re.findall(_TAG, if_match)}
    return lambda stored: not tags or etag_of(stored.tracked(with_account=sees_account).text().encode()) in tags
