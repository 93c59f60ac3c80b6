"""Lines of orders: a shop's order of several articles, which it writes on a line each, as an order for each line."""

from collections.abc import Iterable, Mapping
from typing import Any

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.remedies import Remedy

MAX_OPEN = 10_000
"""Orders between two lines of one at most: so many first lines are kept in memory. A later one is a row of its own."""
SORT = Remedy(f"sort the file by order: at most {MAX_OPEN:,} orders are between two lines of one")

Named = tuple[str | None, str]  # an owner and a reference
_OF_LINE = ("petId", "quantity")  # the fields of which a line without a value has none


class OrderLines:
    """Makes each line of an order an order of its own, in the order of the file.

    The first keeps the number of the order, its reference or else its identifier. The others are `NUMBER/2` and so on
    by reference, and have the values of the first where they have none: those of the order, not its pet and quantity.
    """

    def __init__(self, account: str | None) -> None:
        """`account` owns the orders of which no line names one."""
        self._account = account
        self._owners = dict[str, str | None]()  # by number: the owner of its last line, for lines that name none
        self._open = dict[Named, tuple[int, Mapping[str, Any]]]()  # by order: its lines so far, the values of the first

    def order(self, fields: dict[str, Any], faults: Iterable[InvalidField]) -> dict[str, Any]:
        """The fields of the order that a line becomes; `faults` are those of the line."""
        column = "id" if fields.get("reference") is None else "reference"
        if fields.get(column) is None or any(fault.field in ("id", "reference") for fault in faults):
            return fields
        number, own = str(fields[column]), {name: value for name, value in fields.items() if value is not None}
        key = own.get("account", self._owners.get(number, self._account)), number
        count, first = self._open.pop(key, (0, own))
        self._owners[number] = key[0]
        self._open[key] = count + 1, first
        if not count:
            return fields
        of_order = {name: value for name, value in first.items() if name not in _OF_LINE}
        return {**of_order, **own, "id": None, "reference": f"{number}/{count + 1}"}

    def ended(self, at_most: int = MAX_OPEN) -> list[Named]:
        """Forget all orders but the last ones; return the references that their next lines would have."""
        ended = list(self._open)[: max(0, len(self._open) - at_most)]
        following = [(account, f"{number}/{self._open[account, number][0] + 1}") for account, number in ended]
        for key in ended:
            del self._open[key]
            if self._owners.get(key[1]) == key[0]:
                self._owners.pop(key[1], None)
        return following
