"""Random histories of orders: on both engines the store agrees with a model that is a dictionary."""

import asyncio
import json
import zlib
from collections import Counter
from datetime import UTC, datetime
from itertools import count, cycle
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petstore_server.api.list_cache import OwnLists
from petstore_server.api.v2 import changes
from petstore_server.domain import errors, tokens
from petstore_server.domain.changes import OrderChange, Put
from petstore_server.domain.imports import ImportOutcome, kept_of
from petstore_server.domain.lists import NO_OWNER, Filters, Position, Sort, SortField
from petstore_server.domain.orders import (
    CANCEL,
    COMPLETE,
    INT64_MAX,
    INT64_MIN,
    UNASSIGNED,
    Order,
    Status,
    correct,
    ship,
)
from petstore_server.domain.placements import Placed, Placement
from petstore_server.store import Store, search
from petstore_server.store.listing import starts_piece
from testing.search_model import SORTS, Entry, Model, expected, in_order, instant, walk
from testing.stores import BY, Stores, add_owner, pieces_of, records_of

SHIPPED_AT = datetime(2026, 11, 1, 10, tzinfo=UTC)
SHIP_DATES = (
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59.250000Z",
    "2026-11-01T10:00:00Z",
    "2026-11-01T10:00:00.000001Z",
    "9999-12-31T23:59:59Z",
)
PET_IDS = (0, INT64_MIN, INT64_MAX)
REFERENCES = ("a", 'é "1"\\, {;NULL}', "\N{CAT FACE}" * 64)
TRANSITIONS = {"cancel": CANCEL, "ship": ship(SHIPPED_AT), "complete": COMPLETE}
UPDATED = Sort(SortField.UPDATED_AT)


class Place(NamedTuple):
    """Place orders for these pets, all at once."""

    pet_ids: tuple[int, ...]
    ship_date: str | None
    reference: str | None


class Change(NamedTuple):
    """Change one order."""

    action: str
    order_id: int


class ImportOrders(NamedTuple):
    """Import a batch; with `by_reference` one of orders that have only a reference."""

    orders: tuple[Order, ...]
    replace_placed: bool = False
    by_reference: bool = False


class PutOrder(NamedTuple):
    """Put an order."""

    order: Order


class Correct(NamedTuple):
    """Correct fields of an order."""

    order_id: int
    values: dict[str, Any]


Step = Place | Change | ImportOrders | PutOrder | Correct

# Most of the last start a piece of the list.
IDS = st.integers(-4, 16) | st.sampled_from((INT64_MIN, *filter(starts_piece, range(-8_000, 8_000))))


def orders(ids: st.SearchStrategy[int], references: st.SearchStrategy[str | None]) -> st.SearchStrategy[Order]:
    return st.builds(
        Order,
        ids,
        st.none() | st.sampled_from(PET_IDS),
        st.none() | st.just(1),
        st.none() | st.sampled_from(SHIP_DATES),
        st.none() | st.booleans(),
        st.sampled_from(Status),
        references,
        st.sampled_from((None, None, "zoo", "acme", "missing")),
    )


ORDERS = orders(IDS, st.none() | st.sampled_from(REFERENCES))
NAMED = orders(st.just(UNASSIGNED), st.sampled_from(REFERENCES))
CORRECTIONS = {
    "pet_id": st.none() | st.sampled_from(PET_IDS),
    "ship_date": st.none() | st.sampled_from(SHIP_DATES),
    "complete": st.none() | st.booleans(),
    "reference": st.none() | st.sampled_from(REFERENCES),
}
STEPS = st.one_of(
    st.builds(ImportOrders, st.lists(ORDERS, min_size=1, max_size=12).map(tuple), st.booleans()),
    st.builds(
        ImportOrders,
        st.lists(NAMED, min_size=1, max_size=6, unique_by=lambda order: (order.account, order.reference)).map(tuple),
        st.booleans(),
        st.just(True),
    ),
    st.builds(Change, st.sampled_from(sorted(TRANSITIONS)), IDS),
    st.builds(Change, st.just("cancel"), IDS),
    st.builds(PutOrder, ORDERS),
    st.builds(Correct, IDS, st.fixed_dictionaries({}, optional=CORRECTIONS)),
    st.builds(
        Place,
        st.lists(st.sampled_from(PET_IDS), min_size=1, max_size=3).map(tuple),
        st.none() | st.sampled_from(SHIP_DATES),
        st.none() | st.sampled_from(REFERENCES),
    ),
)
BOUNDS = st.sampled_from(((3000, 1500), (4, 2), (5, 0), (3, 6)))
"""The orders walked for a page, and the orders that are sorted instead, at most."""


class Asked(NamedTuple):
    """Filters, of which `since` selects the time of a change of the history, by its place."""

    filters: Filters
    since: int | None

    def of(self, model: Model) -> Filters:
        times = sorted({entry.updated_at for entry in model.values()})
        if self.since is None or not times:
            return self.filters
        return self.filters._replace(updated_from=times[self.since % len(times)])


INSTANTS = [found + later for date in SHIP_DATES if (found := instant(date)) is not None for later in (0, 1)]
FILTERS = st.builds(
    Filters,
    st.frozensets(st.sampled_from(Status)),
    st.none() | st.sampled_from(PET_IDS),
    st.none() | st.booleans(),
    st.none() | st.sampled_from(INSTANTS),
    st.none() | st.sampled_from(INSTANTS),
    st.none(),
    st.frozensets(st.sampled_from(REFERENCES)),
    st.none() | st.sampled_from((NO_OWNER, 1, 2)),
)
ASKED = st.builds(Asked, FILTERS, st.none() | st.integers(0, 20))


class Follower:
    """A client that follows the changes, of one owner's orders or of all."""

    def __init__(self, store: Store, limit: int, owner: int | None = None) -> None:
        self._store = store
        self._limit = limit
        self._owner = owner
        self._changes = changes.Changes(store)
        self._token: str | None = None

    async def catch_up(self) -> list[Any]:
        """The orders that have changed since, each as it is now, in the order of their changes."""
        found: list[Any] = []
        more = True
        while more:
            clock = await self._store.search.change_clock()
            self._token = self._token or tokens.token_of(clock.epoch, Position(0, INT64_MIN), self._owner)
            body = await self._changes.read(self._token, self._limit, clock, self._owner)
            page = json.loads(body or '{"data": [], "more": false}')
            assert len(page["data"]) == self._limit if page["more"] else len(page["data"]) <= self._limit
            found, more, self._token = found + page["data"], page["more"], page.get("next", self._token)
        return found


class History:
    """A history on a store: `writer` changes it, `reader` is open in another process, as it were."""

    def __init__(self, writer: Store, reader: Store, accounts: dict[str | None, int]) -> None:
        self._writer = writer
        self._reader = reader
        self._accounts = accounts
        self._account_id = accounts["zoo"]
        self._keys = count()
        self._latest = 0
        self._largest_id = 0
        self._placed: set[int] = set()
        self.model: Model = {}

    async def take(self, step: Step) -> set[int]:
        """Take a step on the store and in the model; return the orders that have changed."""
        if isinstance(step, Place):
            changed = await self._place(step)
        elif isinstance(step, Change):
            changed = await self._change(step)
        elif isinstance(step, ImportOrders):
            changed = await self._import(step)
        else:
            changed = await self._request(step)
        for order_id in changed:
            self._largest_id = max(self._largest_id, order_id)
        await self._read_times(changed)
        return set(changed)

    async def _place(self, step: Place) -> dict[int, Order]:
        requests = [
            Placement(self._account_id, str(next(self._keys)), pet_id, 1, step.ship_date, step.reference)
            for pet_id in step.pet_ids
        ]
        if step.reference is not None:  # only one order of the account has it
            return await self._place_with_reference(step, requests)
        placed = await asyncio.gather(*(self._writer.orders.place(request, BY) for request in requests))
        return await self._placed_by(step, requests, placed)

    async def _place_with_reference(self, step: Place, requests: list[Placement]) -> dict[int, Order]:
        placing = (self._writer.orders.place(request, BY) for request in requests)
        outcomes = await asyncio.gather(*placing, return_exceptions=True)
        placed = [each for each in outcomes if isinstance(each, Placed)]
        refused = [each for each in outcomes if isinstance(each, errors.ReferenceInUse)]
        owned = (entry for entry in self.model.values() if entry.owner == self._account_id)
        first = min((entry.order.id for entry in owned if entry.order.reference == step.reference), default=None)
        assert (len(placed), len(refused)) == ((1, len(requests) - 1) if first is None else (0, len(requests)))
        assert {each.values[0] for each in refused} <= {placed[0].order_id if first is None else first}
        if first is not None:
            return {}
        return await self._placed_by(step, [requests[outcomes.index(placed[0])]], placed)

    async def _placed_by(self, step: Place, requests: list[Placement], placed: list[Placed]) -> dict[int, Order]:
        assert min(result.order_id for result in placed) > self._largest_id
        changed = {
            result.order_id: Order(
                result.order_id, request.pet_id, 1, step.ship_date, reference=step.reference, account="zoo"
            )
            for request, result in zip(requests, placed, strict=True)
        }
        assert len(placed) == len(changed)
        self._placed.update(changed)
        for result in placed:
            assert result.body.decode() == (await self._reader.search.find(result.order_id)).text()
        return changed

    async def _change(self, step: Change) -> dict[int, Order]:
        before = self.model.get(step.order_id)
        after = None if before is None else changed_order(before.order, step.action)
        if after is not None:
            changed = await self._writer.orders.change(step.order_id, TRANSITIONS[step.action], BY)
            assert after == changed._replace(account=after.account)
            return {step.order_id: after}
        with pytest.raises(errors.OrderNotFound if before is None else errors.OrderConflict):
            await self._writer.orders.change(step.order_id, TRANSITIONS[step.action], BY)
        return {}

    async def _request(self, step: PutOrder | Correct) -> dict[int, Order]:
        order_id = step.order.id if isinstance(step, PutOrder) else step.order_id
        before = self.model[order_id].order if order_id in self.model else None
        expected = self._put(before, step.order) if isinstance(step, PutOrder) else corrected(before, step.values)
        if isinstance(expected, Order) and self._has_reference(before, expected):
            expected = errors.ReferenceInUse
        request = OrderChange(order_id, Put(step.order) if isinstance(step, PutOrder) else correct(step.values), BY)
        if not isinstance(expected, Order):
            with pytest.raises(expected):
                await self._writer.orders.request(request)
            return {}
        found = await self._writer.orders.request(request._replace(sees_account=True))
        assert (expected, before is None) == (found.stored.order, found.created)
        return {} if expected == before else {order_id: expected}

    def _put(self, before: Order | None, order: Order) -> Order | type[errors.DomainError]:
        """The order after a put, or the error: the outcome of an import of this one record."""
        if order.account not in (None, *self._accounts):
            return errors.UnknownAccount
        after = kept_of(before, order)
        match imported(before, after, protected=order.id in self._placed and order.account is None):
            case ImportOutcome.PROTECTED | ImportOutcome.OTHER_OWNER:
                return errors.AccountMismatch
            case ImportOutcome.REJECTED | ImportOutcome.CORRECTABLE:
                is_shipped = before is not None and before.status is Status.SHIPPED
                return errors.OrderAlreadyShipped if is_shipped else errors.OrderAlreadyCancelled
        return after

    def _has_reference(self, before: Order | None, after: Order) -> bool:
        """Whether another order of the owner has the reference that an order gets."""
        if after.reference is None or (before is not None and named(before) == named(after)):
            return False
        others = (entry.order for entry in self.model.values() if entry.order.id != after.id)
        return named(after) in map(named, others)

    async def _import(self, step: ImportOrders) -> dict[int, Order]:
        current = {order_id: entry.order for order_id, entry in self.model.items()}
        outcomes, changed = [], {}
        seen, new = set[int](), set[int]()  # the orders of earlier rows; `new` are those that got an identifier
        known = {named(order) for order in current.values()}
        import_id, chosen = f"import:{next(self._keys)}", step.replace_placed
        imported = await self._writer.orders.import_batch(
            step.orders, import_id, BY, replace_placed=chosen, by_reference=step.by_reference
        )
        for written, row in [(each, await self._identified(each)) for each in step.orders]:
            order = kept_of(current.get(row.id), row)
            before = current.get(row.id)
            same = before is not None and before.account == row.account and before.reference in (None, row.reference)
            protected = order.id in self._placed and not (step.replace_placed and same)
            others = [each for each in current.values() if each.id != order.id]
            outcome = self._imported(before, order, others, protected=protected)
            is_new = written.id == UNASSIGNED and named(row) not in known
            counts = step.by_reference and outcome is not ImportOutcome.UNKNOWN_ACCOUNT and row.id != UNASSIGNED
            if counts and (row.id in seen or (row.id in new and not is_new)):  # the first row of an order counts
                outcome = ImportOutcome.UNCHANGED if before == order else ImportOutcome.REPEATED
            elif outcome is ImportOutcome.PROTECTED and step.replace_placed:
                outcome = ImportOutcome.OTHER_PLACED
            outcomes.append(outcome)
            if counts:
                (new if is_new else seen).add(row.id)
            if outcomes[-1] in (ImportOutcome.CREATED, ImportOutcome.REPLACED):
                current[order.id] = changed[order.id] = order
        assert outcomes == imported
        return changed

    async def _identified(self, row: Order) -> Order:
        """The row under the identifier that it got; UNASSIGNED if several orders have its reference, or for none."""
        if row.id != UNASSIGNED:
            return row
        ids = [entry.order.id for entry in self.model.values() if named(entry.order) == named(row)]
        if not ids:
            ids = [
                order.id for order in await self._reader.orders.with_references([(row.account, row.reference or "")])
            ]
            assert min(ids, default=self._largest_id + 1) > self._largest_id
        return row._replace(id=ids[0]) if len(ids) == 1 else row

    def _imported(self, existing: Order | None, order: Order, others: list[Order], *, protected: bool) -> ImportOutcome:
        if order.account not in (None, *self._accounts):
            return ImportOutcome.UNKNOWN_ACCOUNT
        if order.id == UNASSIGNED:
            return ImportOutcome.AMBIGUOUS
        outcome = imported(existing, order, protected=protected)
        named = order.account, order.reference
        has_it = existing is not None and named == (existing.account, existing.reference)
        if None in named or has_it or outcome not in (ImportOutcome.CREATED, ImportOutcome.REPLACED):
            return outcome
        used = named in [(each.account, each.reference) for each in others]
        return ImportOutcome.REFERENCE_IN_USE if used else outcome

    async def _read_times(self, changed: dict[int, Order]) -> None:
        """Put the changed orders into the model: each is later than all changes before, and created only once."""
        before = self._latest
        for order_id, order in changed.items():
            found = await self._reader.search.find(order_id)
            assert found.updated_at > before
            known = self.model.get(order_id)
            created_at = known.created_at if known else found.updated_at
            owner = self._accounts.get(order.account)
            self.model[order_id] = Entry(order, found.updated_at, created_at, owner)
            assert self.model[order_id].tracked == found
            self._latest = max(self._latest, found.updated_at)


def changed_order(order: Order, action: str) -> Order | None:
    """The order after a change; None if its status does not allow it."""
    if action == "cancel":
        return order._replace(status=Status.CANCELLED) if order.status is Status.PENDING else None
    if action == "ship":
        shipped = order._replace(status=Status.SHIPPED, ship_date="2026-11-01T10:00:00Z")
        return shipped if order.status is Status.PENDING else None
    completed = order._replace(complete=True)
    return completed if order.status is Status.SHIPPED and not order.complete else None


def named(order: Order) -> tuple[str | None, str | None]:
    """The owner and the reference, which one order has at most, unless it was imported without an owner."""
    return order.account, order.reference


def corrected(before: Order | None, values: dict[str, Any]) -> Order | type[errors.DomainError]:
    """The order after a correction, or the error."""
    if before is None:
        return errors.OrderNotFound
    after = before._replace(**values)
    if before.status is Status.CANCELLED and after not in (before, before._replace(reference=None)):
        return errors.OrderAlreadyCancelled
    newly_complete = after.complete is True and before.complete is not True
    return errors.OrderNotShipped if newly_complete and before.status is Status.PENDING else after


def imported(existing: Order | None, order: Order, *, protected: bool) -> ImportOutcome:
    """The outcome of importing one order; one that was placed over the API may be protected."""
    if existing is None:
        return ImportOutcome.CREATED
    if existing == order:
        return ImportOutcome.UNCHANGED
    if existing.account not in (None, order.account):
        return ImportOutcome.OTHER_OWNER
    if existing._replace(account=None) == order._replace(account=None):
        return ImportOutcome.REPLACED
    if existing.status is not Status.PENDING:
        is_correction = Status.SHIPPED is existing.status is order.status
        same_reference = order.reference in (None, existing.reference)
        return ImportOutcome.CORRECTABLE if is_correction and same_reference else ImportOutcome.REJECTED
    return ImportOutcome.PROTECTED if protected else ImportOutcome.REPLACED


async def check_own_list(lists: OwnLists, owner: int, shown: bytes, etags: dict[bytes, bytes]) -> None:
    """Compare both forms of an account's list. `etags` has that of each list that was shown."""
    whole, zipped = [await lists.form(owner, zipped=zipped) for zipped in (False, True)]
    assert shown == b"".join(whole.whole.chunks)
    decoder = zlib.decompressobj(31)
    assert shown == decoder.decompress(b"".join(zipped.whole.chunks)) + decoder.flush()
    assert decoder.eof
    assert b"" == decoder.unused_data
    assert etags.setdefault(shown, whole.etag) == whole.etag
    assert len(etags) == len(set(etags.values()))
    assert whole.etag[:-1] + b'-gzip"' == zipped.etag


def list_of(model: Model, owner: int | None = None) -> bytes:
    """The list of version 1, of one owner's orders or of all."""
    seen = [entry.order.record() for _, entry in sorted(model.items()) if owner in (None, entry.owner)]
    return f"[{','.join(seen)}]".encode()


async def assert_pages_agree(reader: Store, model: Model, asked: list[Asked]) -> None:
    """Compare the pages of every sort, and the counts, with the model."""
    for filters in [each.of(model) for each in asked]:
        for sort, limit in zip(SORTS, cycle((1, 3, 7, 1000))):
            assert expected(model, filters, sort) == await walk(reader, filters, sort, limit)
    counts = Counter(entry.order.status for entry in model.values())
    assert {status: counts[status] for status in Status} == await reader.search.count_by_status()


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(STEPS, min_size=1, max_size=20),
    st.lists(ASKED, min_size=2, max_size=4),
    st.integers(1, 4),
    st.integers(1, 9),
    BOUNDS,
)
async def test_a_history_agrees_with_a_dictionary(
    each_backend: Stores, steps: list[Step], asked: list[Asked], every: int, limit: int, most: tuple[int, int]
) -> None:
    """Take the steps, and compare the store with the model. The follower looks after `every` steps."""
    stores = each_backend.another()
    async with stores.opened() as writer, stores.opened() as reader:
        accounts: dict[str | None, int] = {name: await add_owner(writer, name) for name in ("zoo", "acme")}
        history = History(writer, reader, accounts)
        owners: tuple[int | None, ...] = (None, *accounts.values())
        followers = {owner: Follower(reader, limit, owner) for owner in owners}
        own, etags = OwnLists(reader.listing), dict[bytes, bytes]()
        unseen = set[int]()
        held = await reader.listing.current()
        for number, step in enumerate(steps, 1):
            unseen |= await history.take(step)
            before, held = held, await reader.listing.current()
            assert list_of(history.model) == b"[" + records_of(held)[1:] + b"]"
            assert (before is held) == (records_of(before) == records_of(held))
            for account_id in accounts.values():
                await check_own_list(own, account_id, list_of(history.model, account_id), etags)
            if number % every == 0 or number == len(steps):
                changed = in_order([history.model[order_id] for order_id in unseen], UPDATED)
                for owner, follower in followers.items():
                    seen = [entry.tracked.text() for entry in changed if owner in (None, entry.owner)]
                    assert list(map(json.loads, seen)) == await follower.catch_up()
                unseen.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search, "MAX_WORK", most[0])
            patch.setattr(search, "NARROW", most[1])
            await assert_pages_agree(reader, history.model, asked)
        async with stores.opened() as new:
            again = await new.listing.current()
        assert (again.mark, again.starts, pieces_of(again)) == (held.mark, held.starts, pieces_of(held))
        assert (again.digest, 32) == (held.digest, len(held.digest))
