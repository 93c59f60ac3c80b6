"""The limit on requests outside of the API, for which no key is needed: per client address, in this process."""

from collections.abc import Callable
from math import ceil

from petstore_server.api.errors import RateLimitExceeded

DOCUMENT_LIMIT = 600
"""Requests per minute and address. The documentation page with its parts takes about ten."""

_SECONDS = 60
_MAX_ADDRESSES = 10_000
_OVERFLOW = ""


class DocumentLimit:
    """Counts requests by address. All windows begin together, so that the table is emptied at once every minute.

    When the table is full, further addresses share one count. `clock` gives Unix seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._counts: dict[str, int] = {}

    def admit(self, address: str) -> None:
        """Count a request. Raises RateLimitExceeded."""
        now = self._clock()
        if not 0 <= now - self._began < _SECONDS:
            self._began = now
            self._counts = {}
        if address not in self._counts and len(self._counts) >= _MAX_ADDRESSES:
            address = _OVERFLOW
        count = self._counts.get(address, 0)
        if count >= DOCUMENT_LIMIT:
            raise RateLimitExceeded(max(1, ceil(self._began + _SECONDS - now)))
        self._counts[address] = count + 1
