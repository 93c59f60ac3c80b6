"""References while orders change together: no order gets one that another order of its owner has (D21)."""

from collections.abc import Iterable

from petstore_server.store.engine import Dialect, Named, PlacementKeys
from petstore_server.store.statements import Work


def find_references(dialect: Dialect, references: Iterable[Named]) -> Work[PlacementKeys]:
    """Lock these references, and find the first and the last order of each owner with each."""
    return dialect.find_keys([], sorted(references), 0.0)


class References:
    """The references of a batch, and the order that has each, as the batch changes them.

    `busy` are those that another transaction uses now. Those that several orders have, as after an import, stay in use
    until the end of the batch, because only the first and the last of these orders are known.
    """

    def __init__(self, found: PlacementKeys) -> None:
        self.busy = found.busy_references
        self._orders = dict(found.references)
        self._shared = found.shared

    def move(self, order_id: int, old: Named | None, new: Named | None) -> int:
        """Give an order the reference `new` instead of `old`; None: it has none.

        Return the order that has the new one: if it is another order, nothing has changed.
        """
        holder = order_id if new is None else self._orders.setdefault(new, order_id)
        if holder == order_id and old is not None and self._orders.get(old) == order_id:
            if old in self._shared:
                self._orders[old] = self._shared[old]
            else:
                del self._orders[old]
        return holder
