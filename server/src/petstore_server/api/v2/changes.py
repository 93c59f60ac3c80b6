"""Changes of orders (version 2): pages, and requests that are held until something changes (D20).

A request that is held compares the clock with the value that was read before its page. One look at the clock
serves all of them, and those that ask for the same share one page.
"""

import asyncio
from collections import Counter

from petstore_server.api.representation import uncached
from petstore_server.api.routes import Call, Held, Operation, Route
from petstore_server.api.v2.input import LIST_CHANGES, NOW
from petstore_server.domain.errors import ChangesReset, ServiceUnavailable
from petstore_server.domain.keys import Scope
from petstore_server.domain.lists import BY_CHANGE, ChangeClock, Filters, PageQuery, Position
from petstore_server.domain.orders import INT64_MAX
from petstore_server.domain.tokens import FIRST, position_after, token_of
from petstore_server.server.messages import Request, Response
from petstore_server.store import Store
from petstore_server.store.search import position_of

MAX_HELD = 1024  # requests that a process holds
MAX_HELD_FOR_ACCOUNT = 32
MAX_HELD_FOR_KEY = 4
LOOK_SECONDS = 0.25

_RETRY_AFTER = b"Retry-After: 2\r\n"  # of a request that would have been held


class Changes:
    """The handler of listChanges, and the requests that it holds. Belongs to one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # With the clock as it was before the page, and the owner whose orders are seen.
        self._held: dict[asyncio.Future[ChangeClock | None], tuple[ChangeClock, int | None]] = {}
        self._places = Counter[str | int]()  # that are taken, of each key by its id and of each account by its number
        self._watching: asyncio.Task[None] | None = None
        self._fault: str | None = None  # why the last look at the clock failed
        self._reading: dict[tuple[str, int, ChangeClock, int | None, bool], asyncio.Task[bytes | None]] = {}
        self._ended = False

    def routes(self) -> list[Route]:
        """The route of changes."""
        return [Route("/v2/store/changes", {"GET": Operation("v2.listChanges", Scope.ORDERS_READ, self.list_changes)})]

    @property
    def held(self) -> int:
        """The number of requests that are held."""
        return self._places.total() // 2

    def end(self) -> None:
        """Answer all that are held, and hold no more: the server stops."""
        self._ended = True
        for woken in self._held:
            _wake(woken, None)

    async def list_changes(self, call: Call) -> Response | Held:
        """The orders that changed after the token. Raises InvalidParameter, InvalidToken, ChangesReset."""
        token, limit, wait = LIST_CHANGES.read(call.request.query).values()
        owner = call.caller.owner
        # Before the clock: a token that is later than the clock is of another history.
        last = await self._last(owner) if token == NOW and owner is not None else None
        clock = await self._store.search.change_clock()
        self._fault = None
        if token is None or token == NOW:
            now = clock.at if last is None else last
            token = token_of(clock.epoch, FIRST if token is None else Position(now, INT64_MAX), owner)
        body = await self.read(token, limit, clock, owner, with_accounts=call.caller.sees_accounts)
        headers, caller = call.request.headers, call.caller
        if body is not None or not wait:
            return uncached(headers, body or _body("", token, more=False))
        of_key, of_account = self._places[caller.key_id], self._places[caller.account_id]
        full = of_key >= MAX_HELD_FOR_KEY or of_account >= MAX_HELD_FOR_ACCOUNT or self.held >= MAX_HELD
        if self._ended or full:
            return uncached(headers, _body("", token, more=False), _RETRY_AFTER)
        return Held(self._hold(call, token, limit, clock, wait), shows_orders=True)

    async def _last(self, owner: int) -> int:
        """The time of the last change of this owner's orders."""
        return (await self._store.search.last_changes([owner])).get(owner, 0)

    async def _hold(self, call: Call, token: str, limit: int, clock: ChangeClock, seconds: int) -> Response:
        """The response once something has changed, or when the time is over, the client or the server ends."""
        request, owner, body = call.request, call.caller.owner, None
        places = call.caller.key_id, call.caller.account_id
        ends = asyncio.get_running_loop().time() + seconds
        self._places.update(places)
        try:
            while body is None:
                changed = await self._next_clock(request, clock, owner, ends)
                if changed is not None:
                    clock = changed
                    body = await self._shared(token, limit, clock, owner, call.caller.sees_accounts)
                elif self._fault is not None:
                    raise ServiceUnavailable(self._fault)
                else:
                    body = _body("", token, more=False)
        finally:
            for place in places:
                self._places[place] -= 1
                if not self._places[place]:
                    del self._places[place]
        return uncached(request.headers, body)

    async def _next_clock(
        self, request: Request, seen: ChangeClock, owner: int | None, ends: float
    ) -> ChangeClock | None:
        """Wait for a clock later than the one that was `seen`; None if the time, the client or the server ends first.

        `ends` is a time of the event loop.
        """
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[ChangeClock | None] = loop.create_future()
        request.waits_for = woken
        self._held[woken] = seen, owner
        timer = loop.call_at(ends, _wake, woken, None)
        if self._watching is None or self._watching.done():
            self._watching = loop.create_task(self._watch())
        if self._ended or request.client_ended:
            woken.set_result(None)
        try:
            return await woken
        finally:
            timer.cancel()
            del self._held[woken]

    async def _watch(self) -> None:
        """Look at the clock for as long as requests are held, and wake those that have seen another one.

        Those that see one owner's orders are woken only by a change of these.
        """
        while self._held:
            await asyncio.sleep(LOOK_SECONDS)
            held = list(self._held.items())  # those that are held from now on may have seen a later clock
            try:
                clock = await self._store.search.change_clock()
                owners = {owner for _, (seen, owner) in held if owner is not None and seen != clock}
                changed = await self._store.search.last_changes(owners) if owners else {}
            except ServiceUnavailable as error:  # it may be usable again before their time is over
                self._fault = error.reason
                continue
            self._fault = None
            for woken, (seen, owner) in held:
                if seen == clock:
                    continue
                if owner is None or seen.epoch != clock.epoch or changed.get(owner, 0) > seen.at:
                    _wake(woken, clock)
                elif woken in self._held:  # only others' orders have changed
                    self._held[woken] = clock, owner

    async def _shared(
        self, token: str, limit: int, clock: ChangeClock, owner: int | None, with_accounts: bool
    ) -> bytes | None:
        """What `read` returns; requests that ask for the same share it."""
        key = token, limit, clock, owner, with_accounts
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.ensure_future(self.read(*key[:-1], with_accounts=with_accounts))
            reading.add_done_callback(lambda _: self._reading.pop(key))
        await asyncio.wait({reading})  # which a cancellation does not end
        return reading.result()

    async def read(
        self, token: str, limit: int, clock: ChangeClock, owner: int | None = None, *, with_accounts: bool = False
    ) -> bytes | None:
        """The body of the page after the token, with a clock that was read before; None if nothing has changed.

        With an owner, of its orders only; or with the names of owners. Raises InvalidToken, ChangesReset.
        """
        after = position_after(token, clock, owner)
        page = await self._store.search.page(PageQuery(Filters(owner=owner), BY_CHANGE, limit, after))
        if not page.rows:
            if owner is not None and (after.value or 0) > await self._last(owner):
                raise ChangesReset  # as of a token that is after the clock
            return None
        last = position_of(page.rows[-1], BY_CHANGE.field)
        await self._store.engine.witness(clock.epoch, last.value or 0)
        text = await self._store.search.text(page, with_accounts=with_accounts)
        return _body(text, token_of(clock.epoch, last, owner), more=page.next is not None)


def _body(orders: str, token: str, *, more: bool) -> bytes:
    return f'{{"data":[{orders}],"next":"{token}","more":{"true" if more else "false"}}}'.encode()


def _wake(woken: asyncio.Future[ChangeClock | None], clock: ChangeClock | None) -> None:
    if not woken.done():
        woken.set_result(clock)
