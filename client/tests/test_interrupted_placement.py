"""A `place_order` that is interrupted: the exception has the key with which the call can be repeated."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import petstore_client
from petstore_client import AsyncClient, PetstoreError, idempotency_key_of
from petstore_client.testing import Dropped, FakeClock, FakePetstore
from testing.client_variants import Silent, faulty

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


def test_ctrl_c_at_any_line_loses_no_key_of_a_placed_order() -> None:
    # An exception of a trace function can leave another one as the thread's current exception, for all tests after it.
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(interrupt_at_each_line).result() > 20
    assert (None, None, None) == sys.exc_info()


def interrupt_at_each_line() -> int:
    """Interrupt a call at each of its lines; return how often its order had been placed by then."""
    placed_and_interrupted = 0
    for line in range(1, 2000):
        fake = FakePetstore()
        petstore = fake.client()
        version_2 = petstore.v2
        try:
            with ctrl_c_at(line):
                order = version_2.place_order(pet_id=3, quantity=1)
        except KeyboardInterrupt as error:
            if fake.orders:
                placed_and_interrupted += 1
                assert_repeatable(fake, error)
        else:
            assert [order.id] == list(fake.orders)
            break
    else:
        pytest.fail("The call has more lines than this test interrupts.")
    return placed_and_interrupted
