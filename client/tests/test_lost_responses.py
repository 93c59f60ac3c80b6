"""Lost responses and interruptions: each call succeeds once, or its error says whether it may have been applied."""

import asyncio
import gzip
import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import petstore_client
from petstore_client import V2, AsyncClient, Client, Order, PetstoreError, errors, idempotency_key_of, v2
from petstore_client.testing import (
    Answered,
    Banned,
    CutOff,
    Dropped,
    Failing,
    FakeClock,
    FakePetstore,
    TimedOut,
    Unreachable,
)
from petstore_client.testing.faults import Fault, KeyInUse, RateLimited
from testing.client_variants import Connect, Own, Silent, faulty

SCOPES = ["orders:read", "orders:cancel", "orders:write", "orders:manage", "webhooks:manage"]
HOOK = "wh_000000000001"  # the first webhook of a fake service
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def shop(*faults: Fault) -> FakePetstore:
    """A fake service with four orders, of which one is shipped, whose key may do everything."""
    return faulty([Order(id=number, quantity=1) for number in range(1, 5)], *faults, shipped=[2], scopes=SCOPES)


def read_again(petstore: Client, changed: v2.Order) -> v2.Order:
    """The order that a call returned, which is as `get_order` returns it."""
    read = petstore.v2.get_order(changed.id)
    assert changed == read
    assert changed.etag == read.etag
    return changed


def batch(petstore: Client, if_match: str | None) -> object:
    others: list[v2.BatchOperation] = [v2.Complete(2), v2.Cancel(3), v2.Put(8), v2.Ship(1, ship_date=NOON)]
    results = petstore.v2.batch_orders([v2.Update(4, quantity=5, if_match=if_match), *others, v2.Complete(1)])
    return [(each.status if each.status != 201 else 200, each.error, each.order and each.order.id) for each in results]


READS: dict[str, Callable[[Client, None], object]] = {
    "list": lambda api, _: api.list_orders(),
    "iteration": lambda api, _: list(api.iter_orders()),
    "page": lambda api, _: api.v2.list_orders().data,
    "pages": lambda api, _: list(api.v2.iter_orders(limit=1)),
    "order": lambda api, _: api.v2.get_order(1),
    "page of changes": lambda api, _: api.v2.list_changes().data,
    "changes": lambda api, _: next(api.v2.follow_changes()).data,
    "usage": lambda api, _: api.v2.get_usage().plan,
    "webhook": lambda api, _: api.v2.webhooks.get(HOOK).state,
    "webhooks": lambda api, _: [each.state for each in api.v2.webhooks.list()],
}
CHANGES: dict[str, Callable[[Client, Any], object]] = {
    "cancel of version 1": lambda api, _: api.cancel_order(1),
    "cancel": lambda api, if_match: api.v2.cancel_order(1, if_match=if_match),
    "place": lambda api, _: api.v2.place_order(pet_id=3, quantity=1, reference="R"),
    "create": lambda api, _: read_again(api, api.v2.put_order(8, quantity=1, create_only=True)),
    "put": lambda api, if_match: read_again(api, api.v2.put_order(1, quantity=5, if_match=if_match)),
    "update": lambda api, if_match: read_again(api, api.v2.update_order(1, quantity=5, if_match=if_match)),
    "ship": lambda api, if_match: read_again(api, api.v2.ship_order(1, ship_date=NOON, if_match=if_match)),
    "complete": lambda api, if_match: read_again(api, api.v2.complete_order(2, if_match=if_match)),
    "batch": batch,
    "update of a webhook": lambda api, _: api.v2.webhooks.update(HOOK, state="paused").state,
    "delete of a webhook": lambda api, _: api.v2.webhooks.delete(HOOK),
}
SINGLE: list[Fault] = [Dropped(applied=True), Dropped(applied=False), TimedOut(applied=True), CutOff(10)]
SINGLE += [Failing(status, applied=True) for status in (500, 502, 503, 504)]
LOST: list[list[Fault]] = [
    *([fault] for fault in SINGLE),
    [Unreachable(), Unreachable(), TimedOut(applied=False)],
    [CutOff(0), RateLimited(5), Failing(503, retry_after=3)],
    [RateLimited(5), Dropped(applied=True), Failing(500), Unreachable()],
    [Failing(503), RateLimited(5), Dropped(applied=True)],
    [Unreachable(), KeyInUse(2), KeyInUse(2)],
    [RateLimited(5), Dropped(applied=True), KeyInUse(), Failing(502, applied=True)],
]


def without_times(found: object) -> object:
    """What a call returned, without the times of the change, which are later after a fault."""
    if isinstance(found, list):
        return [without_times(each) for each in found]
    return {**found.to_dict(), "createdAt": None, "updatedAt": None} if isinstance(found, Order) else found


@pytest.mark.parametrize("faults", LOST, ids=repr)
@pytest.mark.parametrize(
    ("name", "conditional"),
    [*((name, False) for name in READS | CHANGES), *((name, True) for name in CHANGES)],
    ids=str,
)
def test_a_call_whose_response_is_lost_succeeds_once(
    connect: Connect, name: str, conditional: bool, faults: list[Fault]
) -> None:
    outcomes, sent = [], []
    for met in ([], faults):
        fake = shop()
        with connect(fake) as petstore:
            etag = petstore.v2.get_order({"complete": 2, "batch": 4}.get(name, 1)).etag
            petstore.v2.webhooks.create("https://shop.example/orders")
            fake.then(*met)
            outcomes.append(without_times((READS | CHANGES)[name](petstore, etag if conditional else None)))
            outcomes.append(without_times(petstore.v2.list_orders().data))
            outcomes.append([each.state for each in petstore.v2.webhooks.list()])
        fake.assert_faults_used()
        assert 0 == fake.early
        assert len({request.headers.get("idempotency-key") for request in fake.requests}) <= 2
        sent.append(len(fake.requests))
    assert outcomes[:3] == outcomes[3:]
    # After a lost response, one more request may read the order; what comes behind a 204 does not matter.
    assert sent[1] - sent[0] - len(faults) in (-1, 0, 1)


DONE = {
    "cancel of version 1": "order_already_cancelled", "cancel": "order_already_cancelled",
    "ship": "order_already_shipped", "complete": "order_already_complete",
}  # fmt: skip


@pytest.mark.parametrize("before", [[], [RateLimited(5)], [RateLimited(5)] * 2, [Unreachable()]], ids=repr)
@pytest.mark.parametrize("name", DONE)
def test_a_change_that_another_client_made_is_a_conflict(connect: Connect, name: str, before: list[Fault]) -> None:
    fake = shop()
    with connect(fake) as petstore:
        CHANGES[name](petstore, None)
        fake.then(*before)  # which leaves no doubt
        with pytest.raises(errors.ConflictError, match=DONE[name]) as caught:
            CHANGES[name](petstore, None)
    assert not caught.value.may_have_been_applied


FORBIDDEN = Answered(403, b'{"code":"insufficient_scope","message":"No.","status":403}')
IN_DOUBT: list[tuple[list[Fault], type[errors.PetstoreError]]] = [
    ([Dropped()] * 3, errors.APIConnectionError),
    ([TimedOut()] * 3, errors.APITimeoutError),
    ([Failing(500, applied=True)] * 3, errors.ServerError),
    ([Dropped(), RateLimited(999)], errors.RateLimitError),
    ([Dropped(), Banned()], errors.KeyBannedError),
    ([Dropped(), FORBIDDEN], errors.PermissionDeniedError),
    ([Dropped(), Answered(409)], errors.ConflictError),  # of a proxy
    ([Answered(201, b"{}")], errors.InvalidResponseError),
]


@pytest.mark.parametrize(("faults", "kind"), IN_DOUBT, ids=repr)
@pytest.mark.parametrize("name", CHANGES)
def test_a_failed_change_that_may_have_been_applied_says_so(
    connect: Connect, name: str, faults: list[Fault], kind: type[errors.PetstoreError]
) -> None:
    fake = shop(*faults)
    with connect(fake, max_retries=2, max_wait=100) as petstore, pytest.raises(kind) as caught:
        CHANGES[name](petstore, None)
    fake.assert_faults_used()
    assert caught.value.may_have_been_applied
    says = {"place": "may have been placed", "batch": "may have been applied"}.get(name, "It may have been applied")
    assert says in caught.value.__notes__[0]


@pytest.mark.parametrize(("faults", "kind"), [*IN_DOUBT, ([CutOff(5)] * 3, errors.APIConnectionError)], ids=repr)
def test_a_failed_placement_is_repeated_with_the_key_of_its_error(
    connect: Connect, faults: list[Fault], kind: type[errors.PetstoreError]
) -> None:
    fake = shop(*faults)
    with connect(fake, max_retries=2, max_wait=100) as petstore:
        with pytest.raises(kind) as caught:
            petstore.v2.place_order(pet_id=3, quantity=1)
        key = caught.value.idempotency_key
        assert key == fake.requests[0].headers["idempotency-key"]
        assert key == pickle.loads(pickle.dumps(caught.value)).idempotency_key
        assert "idempotency_key" in caught.value.__notes__[0]
        fake.clock.sleep(1000)
        placed = petstore.v2.place_order(pet_id=3, quantity=1, idempotency_key=key)
    assert [1, 2, 3, 4, placed.id] == list(fake.orders)


@pytest.mark.parametrize(
    ("number", "code", "kind"),
    [(1, "order_already_shipped", errors.ConflictError), (2, "order_not_found", errors.NotFoundError)],
)
def test_any_other_refusal_after_a_lost_response_is_raised(
    connect: Connect, number: int, code: str, kind: type[errors.PetstoreError]
) -> None:
    fake = faulty([Order(id=1)], Dropped(), shipped=[1])
    with connect(fake) as petstore, pytest.raises(kind, match=code) as caught:
        petstore.cancel_order(number)
    assert not caught.value.may_have_been_applied


CONFLICT = b'{"code":"order_already_cancelled","message":"No.","status":409}'
GZIP = {"content-type": "application/json", "content-encoding": "gzip"}


@pytest.mark.parametrize(
    "fault",
    [
        Own(lambda *sent: replace(Answered(409, CONFLICT[:9]).apply(*sent), cut=True)),
        Answered(409, gzip.compress(CONFLICT)[:-9], GZIP),
    ],
    ids=["plain", "compressed"],
)
def test_a_conflict_whose_body_is_cut_off_is_one_and_leaves_no_doubt(connect: Connect, fault: Fault) -> None:
    fake = faulty([Order(id=1)], fault)
    fake.cancelled.add(1)
    with connect(fake) as petstore, pytest.raises(errors.ConflictError) as caught:
        petstore.cancel_order(1)
    assert not caught.value.may_have_been_applied  # another client cancelled it


def test_a_broken_body_behind_a_204_does_not_matter(connect: Connect) -> None:
    fake = faulty([Order(id=1)], Own(lambda _, __, serve: replace(serve(), pieces=(b"x",), cut=True)))
    with connect(fake) as petstore:
        petstore.cancel_order(1)
    assert ({1}, 1) == (fake.cancelled, len(fake.requests))


@pytest.mark.parametrize(("status", "doubt"), [(200, True), (202, True), (302, False), (308, False)])
def test_an_unexpected_response_below_300_leaves_doubt_and_a_redirect_does_not(
    connect: Connect, status: int, doubt: bool
) -> None:
    fake = faulty([Order(id=1)], Answered(status))
    with connect(fake) as petstore, pytest.raises(errors.InvalidResponseError) as caught:
        petstore.cancel_order(1)
    assert doubt is caught.value.may_have_been_applied


def test_a_placement_that_a_closed_client_refuses_has_its_key(connect: Connect) -> None:
    with connect(FakePetstore()) as petstore:
        petstore.close()
        with pytest.raises(PetstoreError, match="closed") as caught:
            petstore.v2.place_order(pet_id=3, quantity=1, idempotency_key="mine")
    assert "mine" == caught.value.idempotency_key


SOURCE = str(Path(petstore_client.__file__).parent)
TESTING = str(Path(petstore_client.__file__).parent / "testing")


def assert_repeatable(fake: FakePetstore, error: BaseException) -> None:
    """The call can be repeated with the key of its exception, and places no second order."""
    key = idempotency_key_of(error)
    assert key is not None
    assert key == fake.requests[0].headers["idempotency-key"]
    with fake.client(clock=FakeClock()) as petstore:  # with its own gate, as in a program that is started again
        again = petstore.v2.place_order(pet_id=3, quantity=1, idempotency_key=key)
    assert [again.id] == list(fake.orders)


def run(fake: FakePetstore, interrupt: Callable[[AsyncClient, Silent], Any]) -> None:
    """Run a program with a client that gets no response."""

    async def main() -> None:
        transport = Silent(fake)
        async with fake.async_client(transport=transport) as petstore:
            await interrupt(petstore, transport)

    assert isinstance(fake.clock, FakeClock)
    fake.clock.run(main())


async def wait_for(petstore: AsyncClient, _: Silent) -> None:
    await asyncio.wait_for(petstore.v2.place_order(pet_id=3, quantity=1), 5)


async def timeout(petstore: AsyncClient, _: Silent) -> None:
    async with asyncio.timeout(5):
        await petstore.v2.place_order(pet_id=3, quantity=1)


@pytest.mark.parametrize("interrupt", [wait_for, timeout])
def test_a_timeout_of_asyncio_has_the_key_of_its_cause(interrupt: Callable[[AsyncClient, Silent], Any]) -> None:
    fake = FakePetstore()
    with pytest.raises(TimeoutError) as caught:
        run(fake, interrupt)
    assert_repeatable(fake, caught.value)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert any(f"{idempotency_key_of(caught.value)}" in note for note in caught.value.__cause__.__notes__)


def test_an_error_that_was_raised_from_a_failed_call_has_its_key() -> None:
    fake = faulty([], Dropped())
    with fake.client(max_retries=0) as petstore, pytest.raises(PetstoreError) as caught:
        petstore.v2.place_order(pet_id=3, quantity=1)
    raised_from, raised_during = RuntimeError("The program failed."), KeyboardInterrupt()
    raised_from.__cause__ = raised_during.__context__ = caught.value  # as `asyncio.run` does when Ctrl-C cancels it
    assert caught.value.idempotency_key == idempotency_key_of(raised_from) == idempotency_key_of(raised_during)
    assert_repeatable(fake, raised_from)


def test_other_exceptions_have_no_key() -> None:
    fake = FakePetstore()
    with fake.client() as petstore, pytest.raises(PetstoreError) as caught:
        petstore.cancel_order(1)
    assert idempotency_key_of(caught.value) is None
    assert idempotency_key_of(ValueError()) is None


@contextmanager
def ctrl_c_at(line: int) -> Iterator[None]:
    """Raise KeyboardInterrupt before this line (counted from 1) of the client, where a signal may arrive as well."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        name = frame.f_code.co_filename
        if not name.startswith(SOURCE) or name.startswith(TESTING):
            return None
        lines += event == "line"
        if lines == line:
            lines += 1
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def interrupted(call: Callable[[V2], object], *orders: Order) -> list[tuple[FakePetstore, KeyboardInterrupt]]:
    """Interrupt a call at each of its lines; return the fake service, another one each time, and the exception."""

    def interrupt() -> list[tuple[FakePetstore, KeyboardInterrupt]]:
        found = []
        for line in range(1, 2000):
            fake = FakePetstore(orders, scopes=SCOPES)
            version_2 = fake.client().v2
            try:
                with ctrl_c_at(line):
                    call(version_2)
            except KeyboardInterrupt as error:
                found.append((fake, error))
            else:
                return found
        pytest.fail("The call has more lines than this test interrupts.")

    # An exception of a trace function can leave another one as the thread's current exception, for all tests after it.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(interrupt).result()


def test_ctrl_c_at_any_line_loses_no_key_of_a_placed_order() -> None:
    found = interrupted(lambda api: api.place_order(pet_id=3, quantity=1))
    placed = [(fake, error) for fake, error in found if fake.orders]
    for fake, error in placed:
        assert_repeatable(fake, error)
    assert len(placed) > 20
    assert (None, None, None) == sys.exc_info()


@pytest.mark.parametrize("change", [lambda api: api.cancel_order(1), lambda api: api.ship_order(1)])
def test_ctrl_c_at_any_line_says_that_an_order_may_have_changed(change: Callable[[V2], object]) -> None:
    found = interrupted(change, Order(id=1))
    notes = [" ".join(getattr(error, "__notes__", [])) for fake, error in found if fake.cancelled or fake.shipped]
    assert len(notes) > 20
    assert not [note for note in notes if "may have been applied" not in note]


class Interrupted(FakeClock):
    """A clock at which Ctrl-C ends each wait."""

    def sleep(self, seconds: float) -> None:
        if seconds:
            raise KeyboardInterrupt


@pytest.mark.parametrize("fault", [RateLimited(5), Unreachable(), Dropped()], ids=repr)
@pytest.mark.parametrize("name", [name for name in CHANGES if name != "place"])
def test_ctrl_c_in_a_wait_says_that_an_order_may_have_changed_only_if_it_may(name: str, fault: Fault) -> None:
    fake = shop(fault)
    fake.clock = Interrupted()
    with fake.client() as petstore, pytest.raises(KeyboardInterrupt) as caught:
        CHANGES[name](petstore, None)
    notes = getattr(caught.value, "__notes__", [])
    assert isinstance(fault, Dropped) is ("may have been applied" in " ".join(notes))


def test_a_batch_that_is_interrupted_between_two_requests_says_that_the_first_may_have_been_applied() -> None:
    clock = FakeClock()
    fake, interrupted = (FakePetstore(scopes=SCOPES, per_minute=1, clock=each) for each in (clock, Interrupted()))
    operations = [v2.Put(number) for number in range(501)]

    async def put() -> None:
        async with fake.async_client() as petstore:
            await asyncio.wait_for(petstore.v2.batch_orders(operations), 10)

    with pytest.raises(TimeoutError) as late:
        clock.run(put())
    with interrupted.client() as petstore, pytest.raises(KeyboardInterrupt) as caught:
        petstore.v2.batch_orders(operations)
    assert (500, 500) == (len(fake.orders), len(interrupted.orders))
    for error in (late.value.__cause__, caught.value):
        assert ["Some of its operations may have been applied; repeat the call to find out."] == getattr(
            error, "__notes__", []
        )


def test_a_batch_that_is_interrupted_before_it_reads_its_orders_says_that_they_may_have_changed() -> None:
    fake = FakePetstore([Order(id=1)], scopes=SCOPES, per_minute=2, clock=Interrupted())
    fake.then(Dropped(applied=True))
    with fake.client(jitter=lambda: 0.0) as petstore, pytest.raises(KeyboardInterrupt) as caught:
        petstore.v2.batch_orders([v2.Ship(1)])
    assert (2, {1}) == (len(fake.requests), fake.shipped)
    assert "may have been applied" in " ".join(getattr(caught.value, "__notes__", []))
