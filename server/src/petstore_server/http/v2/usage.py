"""getUsage: the account's windows and the history of its requests (D20)."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from petstore_server.domain.search import timestamp_text
from petstore_server.domain.usage import Granularity, UsageRow
from petstore_server.domain.windows import DAY, Window
from petstore_server.http.request import Request
from petstore_server.http.responses import Response
from petstore_server.http.v2.errors import InvalidParameter
from petstore_server.http.v2.parameters import GET_USAGE
from petstore_server.http.v2.representations import representation
from petstore_server.ports import Store

MOST_ENTRIES = 1000
"""Hours or days in one response."""

_SECONDS = {Granularity.HOUR: 3600, Granularity.DAY: DAY}
_MICROSECONDS = 1_000_000


class UsageOperations:
    """The handler over the store's history. `clock` gives Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def get_usage(self, request: Request) -> Response:
        """The windows after this request was charged, and the history. Raises InvalidParameter."""
        values = GET_USAGE.read(request.query)
        granularity = Granularity(values["granularity"])
        self._range(values, _SECONDS[granularity])
        caller = request.caller
        rows: list[UsageRow] = []  # no store keeps the history yet
        body = {
            "plan": str(caller.plan),
            "windows": [_window(window) for window in request.decision.windows] if request.decision else [],
            "history": [_entry(row) for row in rows],
        }
        return representation(request, msgspec.json.encode(body))

    def _range(self, values: Mapping[str, Any], seconds: int) -> tuple[int, int]:
        """The hours or days that overlap the range asked for, as Unix seconds: the start of the first, and the end."""
        now = int(self._clock())
        end = now + 1 if values["to"] is None else -(-values["to"] // _MICROSECONDS)
        start = end - DAY if values["from"] is None else values["from"] // _MICROSECONDS
        if start > end:
            raise InvalidParameter("'from' is after now; give a time in the past, or 'to' as well.")
        start -= start % seconds
        if end - start > MOST_ENTRIES * seconds:
            raise InvalidParameter(
                f"The time from 'from' to 'to' must be at most {MOST_ENTRIES} times the granularity; ask for less, "
                "or for granularity=day."
            )
        return start, end


def _window(window: Window) -> dict[str, Any]:
    """A window as the limit headers show it; `reset` is in Unix seconds."""
    return {"name": window.name, "limit": window.limit, "remaining": window.remaining, "reset": window.reset}


def _entry(row: UsageRow) -> dict[str, Any]:
    return {"start": timestamp_text(row.start * _MICROSECONDS), "admitted": row.admitted, "refused": row.refused}
