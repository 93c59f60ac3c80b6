"""Clocks: steps by an hour, and the years 2038 and 2100."""

import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import floor
from pathlib import Path

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import Scope
from petstore_server.runtime.background import compact_history
from testing.clock import Clock
from testing.contract_rules import windows_in
from testing.deployment import Deployment
from testing.service import Service, running
from torture.client import ORDERS, Connection
from torture.plan import Check, Result
from torture.plan import Plan as RunPlan

MINUTE, HOUR, DAY = 60, 3_600, 86_400


def checks(plan: RunPlan) -> Iterator[Check]:
    for seed in plan.seeds:
        yield steps(seed)
        for year in (2038, 2100):
            yield leap(seed, year)


@asynccontextmanager
async def service(clock: Clock) -> AsyncIterator[Service]:
    """The whole application in this process, with a clock that is set."""
    with tempfile.TemporaryDirectory(prefix="petstore-torture-") as folder:
        async with running(Deployment(Path(folder) / "store.db"), clock, PETSTORE_LOG_LEVEL="error") as started:
            yield started


async def connected(started: Service, limits: Limits) -> Connection:
    account = await started.account(Plan.ENTERPRISE, limits)
    return Connection(started.transport.port, await started.key(account, scopes=frozenset(Scope)))


async def steps(seed: int, requests: int = 2_000) -> Result:
    """The clock steps by up to an hour, forwards and back: no client waits longer than a window, none gets more."""
    chance, clock, problems = random.Random(seed), Clock(), []
    limits, admitted = Limits(20, 500), 0
    async with service(clock) as started:
        client = await connected(started, limits)
        latest, passed = "", 0.0
        for number in range(requests):
            before = clock.now
            if chance.random() < 0.02:
                clock.now += chance.choice((-HOUR, -61, -1, 1, 61, HOUR))
            reply = await client.place(f"key-{number}", number)
            if reply.status == 201:
                admitted += 1
                if reply.json["updatedAt"] <= latest:
                    problems.append(f"{reply.json['updatedAt']} is not later than {latest}")
                latest = reply.json["updatedAt"]
            else:
                exhausted = [window for window in windows_in(reply.headers) if not window.remaining]
                shown = max(exhausted, key=lambda window: window.resets_in).name
                wait = int(reply.headers["retry-after"])
                if wait > (DAY if shown == "day" else MINUTE) and reply.json["code"] != "api_key_banned":
                    problems.append(f"Retry-After {wait} of the window {shown}")
                clock.now += wait if wait <= HOUR or chance.random() < 0.5 else HOUR
            clock.now += chance.choice((0, 0.5, 3))
            passed += max(0.0, clock.now - before)
        client.close()
    most = (floor(passed / DAY) + 1) * limits.per_day
    problems += [f"{admitted} admitted, {most} at most"] if admitted > most else []
    return Result("clock steps", seed, f"{requests} requests, {admitted} admitted", problems)


async def leap(seed: int, year: int) -> Result:
    """The clock leaps over the end of 32 bits, or to the year 2100, which has no leap day: everything goes on."""
    clock, problems = Clock(), []
    times = {2038: datetime(2038, 1, 19, 3, 14, 0, tzinfo=UTC), 2100: datetime(2100, 2, 28, 23, 59, 0, tzinfo=UTC)}
    async with service(clock) as started:
        client = await connected(started, Limits(1_000, 10_000))
        before = await client.place("before", 1)
        clock.now = times[year].timestamp() + seed % 5
        for number in range(20):
            clock.now += 7
            await started.background_round()
            await compact_history(started.backend.store.usage, started.settings, clock.now)
            placed = await client.place(f"key-{number}", 1)
            now = datetime.fromtimestamp(floor(clock.now), UTC)
            updated = datetime.fromisoformat(placed.json["updatedAt"])
            if not now <= updated < now + timedelta(seconds=2) or parsedate_to_datetime(placed.headers["date"]) != now:
                problems.append(f"{placed.json['updatedAt']} and {placed.headers['date']} at {now}")
            if not clock.now < int(placed.headers["x-ratelimit-reset"]) <= clock.now + DAY:
                problems.append(f"reset at {placed.headers['x-ratelimit-reset']}, {clock.now}")
            if (await client.cancel(placed.json["id"])).status != 204:
                problems.append(f"no cancel at {now}")
        since = before.json["updatedAt"]
        page = await client.request("GET", f"{ORDERS}?sort=updatedAt&updatedFrom={since}&limit=100")
        if len(page.json["data"]) != 21:
            problems.append(f"{len(page.json['data'])} changes followed, not 21")
        client.close()
    return Result(f"a leap to {year}", seed, "20 orders placed and cancelled", problems)
