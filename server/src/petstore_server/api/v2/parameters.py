"""The parameters of each operation of version 2, in tables, and how a query is read by them (D20).

The tables are the one description: the checks and their messages follow from them, and tests compare them with the
contract. A query is strict: whatever the table does not allow is 400 `invalid_parameter`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from petstore_server.api.errors import InvalidParameter
from petstore_server.api.v2.values import Boolean, Choice, Integer, Kind, Text, Timestamp, shown_name
from petstore_server.domain.lists import DEFAULT_LIMIT, MAX_LIMIT
from petstore_server.domain.orders import Status
from petstore_server.domain.usage import Granularity

SORTS = ("id", "-id", "shipDate", "-shipDate", "updatedAt", "-updatedAt")


class Parameter(NamedTuple):
    """One parameter of a query. A repeatable one is read as a list. `default` None: without it, no restriction."""

    name: str
    kind: Kind
    default: Any = None
    repeatable: bool = False


class Parameters:
    """The parameters of one operation. `ranges` are pairs of names, of which the first may not be after the second."""

    def __init__(self, *parameters: Parameter, ranges: Sequence[tuple[str, str]] = ()) -> None:
        self.all = {parameter.name: parameter for parameter in parameters}
        self.ranges = ranges
        self._defaults = {parameter.name: parameter.default for parameter in parameters}

    def read(self, query: bytes) -> Mapping[str, Any]:
        """The values by name, with defaults, from the query of a request target. Raises InvalidParameter.

        `+` is a plus sign, not a space, so that the offset of a timestamp needs no escaping.
        """
        values = dict(self._defaults)
        if not query:
            return values
        given = self._given(query)
        for parameter, texts in given:
            values[parameter.name] = _value(parameter, texts)
        for start, end in self.ranges:
            if values[start] is not None and values[end] is not None and values[start] > values[end]:
                raise InvalidParameter(f"'{start}' is after '{end}'; swap the two or leave one out.")
        return values

    def _given(self, query: bytes) -> list[tuple[Parameter, list[str]]]:
        texts: dict[str, list[str]] = {}
        for pair in filter(None, query.split(b"&")):
            given_name, _, value = pair.partition(b"=")
            texts.setdefault(decoded(given_name), []).append(decoded(value))
        for name in texts:
            if name not in self.all:
                raise InvalidParameter(self._unknown(name))
        return [(self.all[name], values) for name, values in texts.items()]

    def _unknown(self, name: str) -> str:
        known = f"they are {', '.join(self.all)}" if self.all else "it has none"
        return f"The query contains {shown_name(name)}, which is not a parameter of this operation; {known}."


def _value(parameter: Parameter, texts: list[str]) -> Any:
    name, kind = parameter.name, parameter.kind
    if len(texts) > 1 and not parameter.repeatable:
        raise InvalidParameter(f"'{name}' is given more than once; give it once.")
    try:
        values = [kind.from_text(text) for text in texts]
    except ValueError:
        several = "; repeat the parameter for several" if parameter.repeatable else ""
        raise InvalidParameter(f"'{name}' must be {kind.allowed}{several}.") from None
    return values if parameter.repeatable else values[0]


def decoded(text: bytes) -> str:
    """A name or value of a query, percent-decoded. Raises InvalidParameter."""
    try:
        return unquote(text.decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise InvalidParameter("The query is not percent-encoded UTF-8; encode each name and value.") from None


NO_PARAMETERS = Parameters()

LIST_ORDERS = Parameters(
    Parameter("status", Choice([str(status) for status in Status]), repeatable=True),
    Parameter("petId", Integer()),
    Parameter("complete", Boolean()),
    Parameter("shipDateFrom", Timestamp()),
    Parameter("shipDateTo", Timestamp()),
    Parameter("updatedFrom", Timestamp()),
    Parameter("sort", Choice(SORTS), default="id"),
    Parameter("limit", Integer(1, MAX_LIMIT), default=DEFAULT_LIMIT),
    Parameter("cursor", Text(".+", "the nextCursor of a page")),
    ranges=[("shipDateFrom", "shipDateTo")],
)

GET_USAGE = Parameters(
    Parameter("granularity", Choice([str(granularity) for granularity in Granularity]), default="hour"),
    Parameter("from", Timestamp()),
    Parameter("to", Timestamp()),
    ranges=[("from", "to")],
)

IDEMPOTENCY_KEY = Parameter("Idempotency-Key", Text("[!-~]{1,255}", "1 to 255 visible ASCII characters"))
"""A header (draft-ietf-httpapi-idempotency-key-header)."""
