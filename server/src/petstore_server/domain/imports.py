"""What the audit log records of an import."""

from collections.abc import Iterable
from itertools import pairwise

IMPORT_ACTION = "orders.import"
"""The action of the audit entries of an import of orders, one for each batch."""


def id_ranges(ids: Iterable[int]) -> list[list[int]]:
    """The identifiers as ascending ranges [first, last], both included."""
    ordered = sorted(ids)
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:  # the common case
        return [[ordered[0], ordered[-1]]]
    starts = [index for index, (one, following) in enumerate(pairwise(ordered), 1) if following != one + 1]
    edges = [0, *starts, len(ordered)]
    return [[ordered[first], ordered[end - 1]] for first, end in pairwise(edges)] if ordered else []
