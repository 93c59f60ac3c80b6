"""The sample data: what a visitor needs, and what the operator console shows of it."""

import re

from prometheus_client.core import Metric

from petstore_server.console.recent_requests import RecentRequests
from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import Environment, Principal, digest
from petstore_server.domain.lists import Filters, PageQuery, Sort
from petstore_server.domain.orders import CANCEL, Status
from petstore_server.runtime.demo import fill, recent_requests
from testing.console import START, Console


async def test_the_sample_data_has_something_of_everything(console: Console) -> None:
    console.store.orders.first_assigned = 10  # as an operator may have set it for the service
    demo = await fill(console.store, Environment.PRODUCTION, console.clock)
    order = await console.store.orders.change(demo.pending, CANCEL, Actor("operator:ada", START))
    assert Status.CANCELLED is order.status
    assert Status.SHIPPED is (await console.store.orders.find(demo.shipped)).status
    assert Status.PENDING is (await console.store.orders.find(7)).status
    assert ["Paws Express"] == [key.account for key in (await console.store.keys.banned(START, 9)).items]

    for secret, name, number in ((demo.key, "demo", 40), (demo.own_key, "demo-partner", 8)):
        principal = await console.store.keys.principal(digest(secret), Environment.PRODUCTION, START)
        assert isinstance(principal, Principal)
        assert (name, number == 40) == (principal.account, principal.owner is None)
        listed = await console.store.search.page(PageQuery(Filters(owner=principal.owner), Sort()))
        assert number == len(listed.orders)
        assert {Status.PENDING, Status.SHIPPED} <= {order.status for order in listed.orders}

    browser = await console.browser.sign_in()
    accounts = await browser.get("/accounts?sort=-share")
    assert re.search("Nightly Sync .* 1,000 of 1,000 .* Acme Pet Supplies .* 9,300 of 10,000", accounts)
    page = await browser.get("/accounts/Acme%20Pet%20Supplies")
    assert "No requests in this period" not in page
    assert "No requests in this period" in await browser.get("/accounts/demo")
    overview = await browser.get("/")
    assert "Sample data." not in overview
    console.sources.is_sample = True
    assert "Sample data." in await browser.get("/")


async def test_the_sample_requests_come_before_those_of_the_process() -> None:
    families: list[Metric] = []

    async def metrics() -> list[Metric]:
        return families

    requests = RecentRequests(metrics, lambda: START + 1)
    requests.begin_with(recent_requests(START))
    report = await requests.report()
    assert 60 == len(report.intervals)
    counts = [sum(each[1:]) for each in report.intervals]
    assert 0 == counts[-1]
    assert sum(report.total[1:]) == sum(counts) > 200
    assert 0.0005 == report.percentiles[50]
