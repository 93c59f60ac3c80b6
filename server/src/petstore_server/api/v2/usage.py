"""getUsage: the account's windows and the history of its requests (D20)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from petstore_server.api.errors import InvalidParameter
from petstore_server.api.representation import answer
from petstore_server.api.routes import Call, Handler
from petstore_server.api.v2.parameters import GET_USAGE
from petstore_server.domain.keys import Principal
from petstore_server.domain.timestamps import DAY, timestamp_text
from petstore_server.domain.usage import Granularity, UsageRow
from petstore_server.domain.windows import Decision
from petstore_server.server.messages import Response

MOST_ENTRIES = 1000
"""Hours or days in one response."""

_MICROSECONDS = 1_000_000

ReadUsage = Callable[[int, int, int, Granularity], Awaitable[Sequence[UsageRow]]]
"""Reads the usage history of an account, from one time to another in Unix seconds, by hour or day."""


def get_usage(read_usage: ReadUsage, clock: Callable[[], float]) -> Handler:
    """The handler over the usage history, which `read_usage` reads; `clock` gives Unix seconds."""

    async def handle(call: Call, principal: Principal, decision: Decision) -> Response:
        """The windows and the history, both with this request. Raises InvalidParameter."""
        values = GET_USAGE.read(call.request.query)
        by = Granularity(values["granularity"])
        start, end = _range(values, by, clock())
        rows = await read_usage(principal.account_id, start, end, by)
        body = {
            "plan": str(principal.plan),
            "windows": [window._asdict() for window in decision.windows],
            "history": [_entry(row) for row in rows],
        }
        return answer(call.request.headers, msgspec.json.encode(body))

    return handle


def _range(values: Mapping[str, Any], by: Granularity, now: float) -> tuple[int, int]:
    """The hours or days that overlap the range asked for, as Unix seconds: the start of the first, and the end."""
    end = int(now) + 1 if values["to"] is None else -(-values["to"] // _MICROSECONDS)
    start = end - DAY if values["from"] is None else values["from"] // _MICROSECONDS
    if start > end:
        raise InvalidParameter("'from' is after now; give a time in the past, or 'to' as well.")
    start = by.start(start)
    if end - start > MOST_ENTRIES * by.seconds:
        raise InvalidParameter(
            f"'from' and 'to' must be at most {MOST_ENTRIES} times the granularity apart; ask for less, or for "
            "granularity=day."
        )
    return start, end


def _entry(row: UsageRow) -> dict[str, Any]:
    return {"start": timestamp_text(row.start * _MICROSECONDS), "admitted": row.admitted, "refused": row.refused}
