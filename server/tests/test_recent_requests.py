"""The requests of the last hour, from samples of the metrics."""

from collections import Counter
from collections.abc import Mapping

import pytest
from prometheus_client.core import Metric

from petstore_server.console.recent_requests import SAMPLE_SECONDS, RecentRequests, Totals
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.usage import NO_OPERATION, ResponseCounts
from petstore_server.store import Store


class Source:
    """Metrics and a clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.operation = "listOrders"
        self.statuses: dict[str, int] = {}
        self.buckets: dict[str, int] = {}
        self.recent = RecentRequests(self.families, lambda: self.now)

    async def families(self) -> list[Metric]:
        requests = Metric("petstore_requests", "", "counter")
        for status, count in self.statuses.items():
            requests.add_sample("petstore_requests_total", {"operation": self.operation, "status": status}, count)
        seconds = Metric("petstore_request_duration_seconds", "", "histogram")
        for le, count in self.buckets.items():
            seconds.add_sample("petstore_request_duration_seconds_bucket", {"le": le}, count)
        return [requests, seconds]

    async def samples(self, number: int) -> None:
        for _ in range(number):
            self.now += SAMPLE_SECONDS
            await self.recent.sample()


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("listOrders", (8, 5, 2, 2)), pytest.param(NO_OPERATION, (0, 5, 2, 2), id="documents are not answered")],
)
async def test_requests_are_counted_by_outcome_up_to_now(operation: str, expected: tuple[int, ...]) -> None:
    source = Source()
    source.operation = operation
    answered = {"200": 5, "204": 1, "304": 2}
    source.statuses = answered | dict.fromkeys(("401", "403", "404", "409", "500", "503"), 1) | {"429": 3}
    assert expected == (await source.recent.report()).total[1:]


async def test_errors_are_counted_by_operation_and_status_the_most_first() -> None:
    source = Source()
    source.statuses = {"200": 5, "304": 9, "404": 2, "429": 7}
    assert [(("listOrders", "429"), 7), (("listOrders", "404"), 2)] == (await source.recent.report()).errors
    await source.samples(60)
    source.statuses["404"] += 1
    assert [(("listOrders", "404"), 1)] == (await source.recent.report()).errors


async def test_requests_older_than_an_hour_are_left_out() -> None:
    source = Source()
    source.statuses, source.buckets = {"200": 100}, {"0.001": 100, "0.1": 100}
    await source.samples(61)
    source.statuses, source.buckets = {"200": 200}, {"0.001": 150, "0.1": 198, "+Inf": 100}
    report = await source.recent.report()
    assert 100 == report.total.answered
    assert {50: 0.001, 95: 0.1, 99: float("inf")} == report.percentiles
    assert 60 == len(report.intervals)
    assert source.now - 3540 == report.total.start


async def test_samples_of_an_earlier_time_come_first_and_counts_that_fall_are_not_negative() -> None:
    source = Source()
    source.statuses = {"200": 7}
    source.recent.begin_with([Totals(900.0, Counter({("listOrders", "200"): -3}), Counter())])
    await source.recent.sample()
    source.statuses = {"200": 1}  # a worker has died
    report = await source.recent.report()
    assert [(900, 3), (1000, 7), (1000, 0)] == [(each.start, each.answered) for each in report.intervals]
    assert {50: None, 95: None, 99: None} == report.percentiles


async def test_samples_are_stored_by_hour_and_kept_while_they_cannot_be() -> None:
    source, saved = Source(), list[dict[int, ResponseCounts]]()
    source.now = 7199.0

    async def add(counted: Mapping[int, ResponseCounts]) -> None:
        saved.append(dict(counted))

    async def fail(_: Mapping[int, ResponseCounts]) -> None:
        raise ServiceUnavailable("away")

    await source.recent.sample()
    await source.recent.save(add)
    assert [] == saved, "nothing was responded"
    for now, responses in ((7199.5, 10), (7260.0, 30)):
        source.now = now
        source.statuses = {"200": responses - 3, "404": 1, "503": 2}
        source.buckets = {"0.001": responses - 2, "0.01": responses - 1, "inf": responses}
        await source.recent.sample()
        with pytest.raises(ServiceUnavailable):
            await source.recent.save(fail)
    await source.recent.save(add)
    first, second = ResponseCounts(2, {0.001: 8, 0.01: 1, float("inf"): 1}), ResponseCounts(0, {0.001: 20})
    assert [{3600: first, 7200: second}] == saved
    await source.recent.save(add)
    assert 1 == len(saved), "nothing is stored twice"


def test_a_percentile_is_the_bound_below_which_so_many_durations_are() -> None:
    counts = ResponseCounts(0, {0.5: 1, 0.001: 98, float("inf"): 1})
    assert [0.001, 0.5, float("inf")] == [counts.percentile(percent) for percent in (98, 99, 100)]
    assert None is ResponseCounts(3, {}).percentile(50)


async def test_hosts_add_to_the_same_hours_which_are_kept_for_a_week(store: Store) -> None:
    day, hour = 86_400, 3600
    one, other = ResponseCounts(2, {0.001: 5, float("inf"): 1}), ResponseCounts(0, {0.001: 7, 0.01: 3})
    await store.responses.add({0: one, 8 * day: one})
    await store.responses.add({8 * day: other})
    both = ResponseCounts(2, {0.001: 12, 0.01: 3, float("inf"): 1})
    assert {0: one, 8 * day: both} == await store.responses.hours(0, 8 * day + hour)
    assert {0: one} == await store.responses.hours(0, 8 * day)
    await store.responses.add({8 * day + hour: other})
    assert [8 * day, 8 * day + hour] == list(await store.responses.hours(0, 9 * day))
