"""A queue that its owners share evenly, however much each of them puts into it."""

from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items that wait, by their owner. Those of one owner keep their order."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, list[Item]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, owner: Hashable, item: Item) -> None:
        """Put the item behind those that the owner has waiting."""
        self._waiting.setdefault(owner, []).append(item)

    def take(self, most: int) -> list[Item]:
        """Remove and return up to `most` items, an equal share of each owner.

        Owners with items left go last: in what is returned, and in the next call.
        """
        owners = list(islice(self._waiting, most))
        share = most // max(len(owners), 1)
        taken: list[Item] = []
        last: list[Item] = []
        for owner in owners:
            items = self._waiting.pop(owner)
            if len(items) <= share:
                taken += items
            else:
                last += items[:share]
                self._waiting[owner] = items[share:]
        return taken + last
