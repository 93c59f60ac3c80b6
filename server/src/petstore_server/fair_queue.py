"""A queue that flows share evenly, such as those of accounts, however much each of them puts into it."""

from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items that wait, by their flow. Those of one flow keep their order."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, list[Item]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, flow: Hashable, item: Item) -> None:
        """Put the item behind those that the flow has waiting."""
        self._waiting.setdefault(flow, []).append(item)

    def take(self, most: int) -> list[Item]:
        """Remove and return up to `most` items, an equal share of each flow.

        Flows with items left go last: in what is returned, and in the next call.
        """
        flows = list(islice(self._waiting, most))
        share = most // max(len(flows), 1)
        taken: list[Item] = []
        last: list[Item] = []
        for flow in flows:
            items = self._waiting.pop(flow)
            if len(items) <= share:
                taken += items
            else:
                last += items[:share]
                self._waiting[flow] = items[share:]
        return taken + last
