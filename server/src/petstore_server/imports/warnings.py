"""Warnings of an import: what programs of partners may read wrongly, and what may not be an order."""

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

from petstore_server.domain.imports import IMPORTED, ImportOutcome
from petstore_server.domain.orders import MAX_ASSIGNED_ID, Status
from petstore_server.domain.remedies import Choice, Remedy, with_remedy

_NAME_OWNERS = Remedy("{}, or a column account", (Choice("account", "NAME"),))
_NAME_OWNERS_LATER = Remedy(
    "to name owners, import a file of the columns id and account, and {}", (Choice("update_only"),)
)
_LARGE = {
    "id": (MAX_ASSIGNED_ID, "identifier", "identifiers", "programs in JavaScript read {} wrongly"),
    "quantity": (2**31 - 1, "quantity", "quantities", "generated programs in Go and Java cannot read lists with {}"),
}
"""The greatest values of fields that all programs of partners read rightly, and what happens with greater ones."""


class Warnings:
    """Counts, batch by batch, the imported orders to warn of. `restricts`: an account sees its own orders only."""

    def __init__(self) -> None:
        self.restricts = False
        self._large = dict.fromkeys(_LARGE, 0)
        self._without_owner = 0  # orders that were created
        self._returns = self._first_return = 0  # rows with a quantity below 1, not cancelled, and the line of the first

    def count_given(self, orders: Sequence[Any], outcomes: Sequence[ImportOutcome], line: Callable[[int], int]) -> None:
        """Count orders as the file has them; `line` returns the line of the one at a place."""
        if self.restricts:
            created = [each is ImportOutcome.CREATED for each in outcomes]
            owners = list(compress(map(attrgetter("account"), orders), created))
            self._without_owner += owners.count(None)
        quantities = {*map(attrgetter("quantity"), orders)} - {None}  # of rows without one
        if min(quantities, default=1) >= 1:
            return
        low = [at for at, order in enumerate(orders) if order.quantity is not None and order.quantity < 1]
        places = [at for at in low if orders[at].status is not Status.CANCELLED and outcomes[at] in IMPORTED]
        if places and not self._returns:
            self._first_return = line(places[0])
        self._returns += len(places)

    def count_completed(self, orders: Sequence[Any], outcomes: Sequence[ImportOutcome]) -> None:
        """Count orders with what the file leaves as it is stored."""
        for field, (most, *_) in _LARGE.items():
            values = list(map(attrgetter(field), orders))
            if max(filter(None, values), default=0) > most:
                large = [at for at, value in enumerate(values) if (value or 0) > most]
                self._large[field] += sum(outcomes[at] in IMPORTED for at in large)

    def texts(self, encoding: str | None, phrase: Callable[[Choice], str], *, is_dry: bool) -> Iterator[str]:
        """The warnings. `encoding` is that of the file as it was given, if the file is UTF-8 all the same."""
        for count, (most, one, many, effect) in zip(self._large.values(), _LARGE.values(), strict=True):
            if count:
                them, are = ("them", f"{many} are") if count > 1 else ("it", f"{one} is")
                yield f"{count:,} {are} above {most}; {effect.format(them)}."
        if encoding is not None:
            yield f"The file is valid UTF-8, and is read as {encoding}; leave out the encoding."
        count, line = self._returns, self._first_return
        if count > 1:
            yield f"{count:,} rows have a quantity below 1, first in line {line}, and are imported; leave out returns."
        elif count:
            yield f"1 row has a quantity below 1, in line {line}, and is imported; leave it out if it is a return."
        if count := self._without_owner:
            have, them = ("1 order has", "it") if count == 1 else (f"{count:,} orders have", "them")
            problem = f"{have} no owner: accounts that see their own orders only do not see {them}."
            yield with_remedy(problem, _NAME_OWNERS if is_dry else _NAME_OWNERS_LATER, phrase)
