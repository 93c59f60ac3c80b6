"""What a page shows of sources that are slow or down: the last value with its age, or why there is none."""

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from itertools import count
from time import monotonic
from typing import Any
from unittest.mock import AsyncMock

import pytest
from markupsafe import Markup

from petstore_server.console import rendering, sources
from petstore_server.console.sources import SLOW, Cached, Reading, read_within
from petstore_server.domain.audit import AuditEntry
from petstore_server.domain.errors import NotFound, ServiceUnavailable, Unreachable
from testing.console import CURRENT, Console

KNOWN: Any = rendering.ENVIRONMENT.get_template("macros.html").module.known  # type: ignore[attr-defined]
IMPATIENT = {"old": 0.01, "missing": 0.01, "rest": 1000.0}


async def test_closing_waits_for_a_value_that_is_being_read() -> None:
    cached = Cached(partial(asyncio.sleep, 0.01, 1), missing=0, rest=1000)
    assert (None, 0.0, "") == await cached.get()
    await cached.close()
    assert 1 == (await cached.get()).value


async def test_closing_cancels_a_value_that_does_not_come() -> None:
    cached = Cached(asyncio.Event().wait, missing=0)
    await cached.get()
    await asyncio.sleep(0)
    await cached.close(wait_seconds=0)
    assert cached._reading is not None
    assert cached._reading.cancelled()


async def test_a_value_that_takes_long_is_shown_later_and_read_once_for_concurrent_callers() -> None:
    allowed = asyncio.Event()
    read = AsyncMock(side_effect=allowed.wait)
    cached = Cached(read, **IMPATIENT)
    assert [Reading()] * 3 == await asyncio.gather(*[cached.get() for _ in range(3)])
    allowed.set()
    await asyncio.sleep(0)
    assert (await cached.get()).value
    assert 1 == read.await_count


async def test_a_source_that_goes_down_leaves_the_last_value_with_the_reason() -> None:
    problem = Unreachable("The usage cannot be read", "refused", "Check Redis.")
    cached = Cached(AsyncMock(side_effect=[7, problem, 8]), **CURRENT)
    readings = [await cached.get() for _ in range(3)]
    shown = [(7, ""), (7, "The usage cannot be read (refused). Check Redis."), (8, "")]
    assert shown == [(each.value, each.problem) for each in readings]
    assert readings[1].age > 0


async def test_a_value_that_cannot_be_read_at_all_says_so(caplog: pytest.LogCaptureFixture) -> None:
    value, _, reason = await Cached(AsyncMock(side_effect=RuntimeError("a defect")), **CURRENT).get()
    assert (None, "This cannot be read; the log of the server says why.") == (value, reason)
    assert ["console page lacks a value"] == [record.message for record in caplog.records]


async def test_a_value_is_kept_for_a_multiple_of_the_time_that_it_took() -> None:
    numbers = count(1)

    async def read() -> int:
        await asyncio.sleep(0.01)
        return next(numbers)

    kept, current = (Cached(read, old=60, missing=60, rest=rest) for rest in (1000, 0))
    assert [1, 1] == [(await kept.get()).value, (await kept.get()).value]
    assert [2, 3] == [(await current.get()).value, (await current.get()).value]
    briefly, began = Cached(read, old=60, missing=60, rest=1), monotonic()
    assert 4 == (await briefly.get()).value
    await asyncio.sleep(monotonic() - began)
    assert 5 == (await briefly.get()).value


async def test_reading_ends_in_time() -> None:
    down, missing = AsyncMock(side_effect=ServiceUnavailable("the store is gone")), AsyncMock(side_effect=NotFound(""))
    assert Reading(problem=SLOW) == await read_within(asyncio.Event().wait(), 0.01)
    assert Reading(problem=SLOW) == await read_within(asyncio.Event().wait(), -1)
    assert Reading(problem="The store is gone.") == await read_within(down(), 1)
    with pytest.raises(NotFound):
        await read_within(missing(), 1)


async def test_what_is_not_read_in_time_is_given_up_and_closing_waits_for_that(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.setattr(sources, "_late", late := set[asyncio.Task[Any]]())

    async def give_up(error: BaseException) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            raise error from None

    for error in (RuntimeError("a lost connection"), asyncio.CancelledError()):
        assert (None, 0.0, SLOW) == await read_within(give_up(error), 0)
    assert 2 == len(late)
    counts: Any = console.sources.order_counts
    counts._read, counts._missing = partial(asyncio.sleep, 0.01), 0
    await counts.get()
    await console.sources.close()
    gc.collect()
    assert set() == late
    assert [] == caplog.records
    assert counts._reading.done()


@pytest.mark.parametrize(
    ("show", "shown"),
    [
        (rendering.percent, {0: "0%", 0.001: "<1%", 0.01: "1%", 0.5: "50%", 0.99: "99%", 0.996: ">99%", 1: "100%"}),
        (rendering.duration, {-1: "0 s", 0.9: "0 s", 59: "59 s", 60: "1 min", 3599: "59 min", 86_400_000: "1,000 d"}),
        (rendering.round_up, {0: 1, 1: 1, 1.5: 2, 3: 5, 5: 5, 6: 10, 11: 20, 51: 100, 100: 100, 1001: 2000}),
        (rendering.unix, {None: None, 0: 0, 1_500_000: 1.5, "1970-01-01T00:00:02Z": 2}),
        (
            rendering.store_name,
            {"sqlite:////a/b.db": "b.db", "postgresql://me:secret@db.example:5433/shop": "db.example:5433/shop"},
        ),
        (lambda age: str(KNOWN(Reading(1, age))).strip(), {5: "", 6: '<p class="hint">As of 6 s ago.</p>'}),
        (rendering.visible, {"a\x1bb": r"a\x1bb", "plain": "plain", 7: 7, Markup("<b>\u202e"): Markup(r"<b>\u202e")}),
        (
            rendering.plain_times,
            {"at 2026-11-23T05:00:01.25Z, 2026-11-23T05:00Z": "at 2026-11-23 05:00:01, 2026-11-23 05:00"},
        ),
    ],
)
def test_values_are_shown_in_the_same_way_everywhere(show: Callable[[Any], Any], shown: dict[Any, Any]) -> None:
    found = {value: show(value) for value in shown}
    assert shown == found
    assert list(map(type, shown.values())) == list(map(type, found.values())) or show is rendering.unix


def test_the_fields_of_a_change_are_shown_by_name_before_and_after() -> None:
    before = {"id": 12345, "per_minute": 1000, "until": 60, "scopes": ["a", "b"], "ban": {"level": 2, "isOn": True}}
    after: dict[str, Any] = {"id": 12345, "petId": 54321, **dict.fromkeys("abcdefghi")}
    assert [
        ("id", "12345", "12345"),
        ("per minute", "1,000", ""),
        ("until", "1970-01-01 00:01:00", ""),
        ("scopes", "a, b", ""),
        ("ban", "level 2, is on yes", ""),
        ("pet id", "", "54321"),
        *((letter, "", "–") for letter in "abcdef"),
    ] == rendering.changed_fields(AuditEntry(1, 0.0, "service", "a", "b", before, after))
    assert [] == rendering.changed_fields(AuditEntry(1, 0.0, "service", "a", "b", None, None))
