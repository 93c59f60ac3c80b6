"""Usage, of version 2: what an account has used, and the state of its key (D20)."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from petstore_server.api.errors import InvalidParameter
from petstore_server.api.representation import answer
from petstore_server.api.routes import ANY_KEY, Call, Operation, Route
from petstore_server.api.v2.input import GET_USAGE
from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import Principal
from petstore_server.domain.timestamps import DAY, format_unix
from petstore_server.domain.usage import Granularity, UsageCounts
from petstore_server.domain.windows import AccountDecision
from petstore_server.server.messages import Response
from petstore_server.store import Store

_MAX_ENTRIES = 1000  # hours or days in one response
_MICROSECONDS = 1_000_000

ReadUsage = Callable[[int, int, int, Granularity], Awaitable[Mapping[int, UsageCounts]]]
"""Reads the usage history of an account, from one time to another in Unix seconds, by hour or day."""


def routes(store: Store, read_usage: ReadUsage) -> list[Route]:
    """The route of usage over a store."""
    get_usage = Operation("v2.getUsage", ANY_KEY, partial(_get_usage, store, read_usage))
    return [Route("/v2/usage", {"GET": get_usage, "HEAD": get_usage})]


async def _get_usage(store: Store, read_usage: ReadUsage, call: Call) -> Response:
    """The account's windows and history, both with this request, and the key. Raises InvalidParameter.

    Now is when the request was counted: with Redis, by its clock, not by that of this host.
    """
    values = GET_USAGE.read(call.request.query)
    principal, by = call.caller, values["granularity"]
    decision = cast(AccountDecision, call.decision)  # there is one of each valid key
    start, end = _range(values, by, decision.now)
    history = await read_usage(principal.account_id, start, end, by)
    body = {
        "plan": str(principal.plan),
        "orders": str(VisibleOrders.ALL if principal.owner is None else VisibleOrders.OWN),
        "windows": [window._asdict() for window in decision.windows],
        "history": [
            {"start": format_unix(at), "admitted": counts.admitted, "refused": counts.refused}
            for at, counts in history.items()
        ],
        "key": _key(principal, await store.usage.last_ban(principal.key_id)),
    }
    return answer(call.request.headers, msgspec.json.encode(body))


def _key(principal: Principal, ban: Ban | None) -> dict[str, Any]:
    """What getUsage shows of the key that asks."""
    key: dict[str, Any] = {"id": principal.key_id, "scopes": sorted(principal.scopes)}
    if principal.expires_at is not None:
        key["expiresAt"] = format_unix(principal.expires_at, microseconds=True)
    if ban is not None:
        key["lastBan"] = {"began": format_unix(ban.began), "ended": format_unix(ban.until)}
    return key


def _range(values: Mapping[str, Any], by: Granularity, now: float) -> tuple[int, int]:
    """The hours or days that overlap the range asked for, as Unix seconds: the start of the first, and the end."""
    end = int(now) + 1 if values["to"] is None else -(-values["to"] // _MICROSECONDS)
    start = end - DAY if values["from"] is None else values["from"] // _MICROSECONDS
    if start > end:
        raise InvalidParameter("'from' is after now; give a time in the past, or 'to' as well.")
    start = by.start(start)
    if end - start > _MAX_ENTRIES * by.seconds:
        wider = ", or for granularity=day" if by is Granularity.HOUR else ""
        raise InvalidParameter(
            f"'from', rounded down to the {by}, and 'to' must be at most {_MAX_ENTRIES} {by}s apart; "
            f"ask for less{wider}."
        )
    return start, end
