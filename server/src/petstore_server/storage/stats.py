"""Counters that a store keeps for metrics; the same for every engine."""

from collections.abc import Callable


class Stats:
    """Counters for metrics. Implements `ports.StoreStats`."""

    def __init__(self) -> None:
        self.commits = 0
        self.rebuilds = 0
        self.on_commit: Callable[[int], None] | None = None
        self.on_rebuild: Callable[[float], None] | None = None

    def committed(self, changes: int) -> None:
        self.commits += 1
        if self.on_commit is not None:
            self.on_commit(changes)

    def rebuilt(self, seconds: float) -> None:
        self.rebuilds += 1
        if self.on_rebuild is not None:
            self.on_rebuild(seconds)
