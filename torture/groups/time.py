"""Clocks: a simulated day and month of the service, steps by an hour, the years 2038 and 2100, daylight saving."""

import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import ceil, floor
from pathlib import Path
from zoneinfo import ZoneInfo

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import Scope
from petstore_server.runtime.background import compact_history
from testing.clock import START, Clock
from testing.deployment import Deployment
from testing.service import Service, running
from torture.client import LIST, ORDERS, Connection
from torture.plan import Check, Result
from torture.plan import Plan as RunPlan
from torture.programs import petstore
from torture.state import url_of

MINUTE, HOUR, DAY = 60, 3_600, 86_400
SCOPES = frozenset({Scope.ORDERS_READ, Scope.ORDERS_CANCEL, Scope.ORDERS_WRITE, Scope.PETS_READ})
_ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


def checks(plan: RunPlan) -> Iterator[Check]:
    for seed in plan.seeds:
        yield a_day(seed)
        yield a_month(seed)
        yield steps(seed)
        for year in (2038, 2100):
            yield leap(seed, year)
        yield daylight_saving(seed)


@dataclass
class Model:
    """The windows of one account, as D12 describes them."""

    limits: dict[int, int]  # by the seconds of a window
    windows: dict[int, tuple[int, int]] = field(default_factory=lambda: {MINUTE: (0, 0), DAY: (0, 0)})

    def admits(self, now: float) -> bool:
        rolled = {seconds: _rolled(window, seconds, now) for seconds, window in self.windows.items()}
        admitted = all(used < self.limits[seconds] for seconds, (_, used) in rolled.items())
        self.windows = {seconds: (start, used + admitted) for seconds, (start, used) in rolled.items()}
        return admitted

    def retry_after(self, now: float) -> int:
        ends = [start + seconds for seconds, (start, used) in self.windows.items() if used >= self.limits[seconds]]
        return max(1, ceil(max(ends) - now))


def _rolled(window: tuple[int, int], seconds: int, now: float) -> tuple[int, int]:
    start, used = window
    if now < start:
        return floor(now), used
    return (start, used) if now < start + seconds else (floor(now), 0)


@asynccontextmanager
async def service(clock: Clock) -> AsyncIterator[Service]:
    """The whole application in this process, with a clock that is set."""
    with tempfile.TemporaryDirectory(prefix="petstore-torture-") as folder:
        async with running(Deployment(Path(folder) / "store.db"), clock, PETSTORE_LOG_LEVEL="error") as started:
            yield started


async def connected(started: Service, limits: Limits, expires_at: float | None = None) -> Connection:
    account = await started.account(Plan.ENTERPRISE, limits)
    return Connection(started.transport.port, await started.key(account, scopes=SCOPES, expires_at=expires_at))


async def a_day(seed: int, requests: int = 4_000) -> Result:
    """A client uses its quota for more than a day, and waits or not after a 429: each decision is the model's."""
    chance, clock, problems, admitted = random.Random(seed), Clock(), [], 0
    limits = Limits(10, 1_000)
    model = Model({MINUTE: limits.per_minute, DAY: limits.per_day})
    async with service(clock) as started:
        client = await connected(started, limits)
        for _ in range(requests):
            expected = model.admits(clock.now)
            reply = await client.request("GET", f"{ORDERS}/1")
            admitted += reply.status == 404
            if (reply.status == 404) != expected:
                problems.append(f"{reply.status} at {clock.now}")
            if reply.status == 429:
                wait = int(reply.headers["retry-after"])
                if wait != model.retry_after(clock.now):
                    problems.append(f"Retry-After {wait} at {clock.now}")
                clock.now += wait if wait < HOUR or chance.random() < 0.9 else HOUR
            else:
                clock.now += chance.choice((0.1, 1.0, 7.3, 90.0))
            if chance.random() < 0.1:
                await started.background_round()
        client.close()
    days = (clock.now - START) / DAY
    return Result("a simulated day", seed, f"{days:.1f} days, {requests} requests, {admitted} admitted", problems)


async def a_month(seed: int) -> Result:
    """Thirty days: keys expire, bans end, idempotency keys and usage are forgotten, sessions end, an operation ends."""
    chance, clock, problems = random.Random(seed), Clock(datetime(2027, 11, 10, 12, tzinfo=UTC).timestamp()), []
    begin, expiry = clock.now, clock.now + 15 * DAY + 0.5

    def expect(what: str, found: object, expected: object) -> None:
        if found != expected:
            problems.append(f"day {(clock.now - begin) / DAY:.1f}: {what} is {found}, not {expected}")

    async with service(clock) as started:
        store = started.backend.store
        client = await connected(started, Limits(100, 1_000))
        ending = await connected(started, Limits(100, 1_000), expiry)
        sunset = started.settings.pets_sunset.timestamp()
        latest = ""
        for day in range(30):
            first = await client.place(f"day-{day}", day)
            expect("a placed order", first.status, 201)
            expect("updatedAt ascends", first.json["updatedAt"] > latest, True)
            latest = first.json["updatedAt"]
            await store.sessions.create_link(f"link {day}", started.actor)
            clock.now += chance.uniform(1, 290)
            session = await store.sessions.sign_in(f"link {day}", f"session {day}", clock.now)
            expect("a sign-in", session is not None, True)
            for hour in range(24):
                expect("the list", (await client.request("GET", LIST)).status, 200)
                expect("a key until its end", (await ending.read(1)).status, 200 if clock.now < expiry else 401)
                gone = (await client.request("GET", "/v1/pets/1")).status == 410
                expect("whether the operation has ended", gone, clock.now >= sunset)
                session = await store.sessions.find(f"session {day}", clock.now)
                expect("a session that is used", session is not None, hour < 12 or day % 2 == 0)
                clock.now += HOUR if day % 2 == 0 or hour != 11 else 13 * HOUR
                await started.background_round()
                started.backend.local.forget()
                await store.orders.forget(clock.now - DAY, 1000)
                await compact_history(store.usage, started.settings, clock.now)
            expect(
                "the key's order after a day",
                (await client.place(f"day-{day}", day)).json["id"] > first.json["id"],
                True,
            )
        client.close()
        ending.close()
    return Result("a simulated month", seed, f"{(clock.now - begin) / DAY:.0f} days", problems)


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
                shown, wait = _shown_window(reply.headers["ratelimit"]), int(reply.headers["retry-after"])
                if wait > (DAY if shown == "day" else MINUTE) and reply.json["code"] != "api_key_banned":
                    problems.append(f"Retry-After {wait} of the window {shown}")
                clock.now += wait if wait <= HOUR or chance.random() < 0.5 else HOUR
            clock.now += chance.choice((0, 0.5, 3))
            passed += max(0.0, clock.now - before)
        client.close()
    most = (floor(passed / DAY) + 1) * limits.per_day
    problems += [f"{admitted} admitted, {most} at most"] if admitted > most else []
    return Result("clock steps", seed, f"{requests} requests, {admitted} admitted", problems)


def _shown_window(header: str) -> str:
    """The name of the window with nothing left that resets last."""
    found = [part.split(";") for part in header.split(", ")]
    exhausted = [(int(parts[2][2:]), parts[0].strip('"')) for parts in found if parts[1] == "r=0"]
    return max(exhausted)[1]


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


async def daylight_saving(seed: int) -> Result:
    """Local times of an import on days on which clocks change: each exact, or refused where it is twice or never."""
    chance, problems = random.Random(seed), []
    with tempfile.TemporaryDirectory(prefix="petstore-torture-") as name:
        folder = Path(name)
        for number, zone in enumerate(_ZONES):
            local = [_near_a_change(ZoneInfo(zone), chance) for _ in range(300)]
            file, url = folder / "orders.csv", url_of(folder / f"store-{number}.db")
            rows = [f"{order},1,1,{time:%Y-%m-%d %H:%M:%S}" for order, time in enumerate(local, 1)]
            file.write_text("\n".join(["id,petId,quantity,shipDate", *rows]) + "\n")
            petstore(url, "db", "migrate")
            petstore(
                url, "orders", "import", str(file), "--timezone", zone, "--rejects", str(folder / f"r{number}.csv")
            )
            done = petstore(url, "orders", "export", str(folder / f"out-{number}.csv"))
            problems += [done.stderr] if done.returncode else []
            found = (folder / f"out-{number}.csv").read_text()
            for order, time in enumerate(local, 1):
                line = next((line for line in found.splitlines() if line.startswith(f"{order},")), None)
                expected = _exact(time, ZoneInfo(zone))
                if (line is None) != (expected is None) or (line and expected and expected not in line):
                    problems.append(f"{time} in {zone}: {line}, not {expected}")
    return Result("daylight saving in imports", seed, f"{300 * len(_ZONES)} local times", problems)


def _near_a_change(zone: ZoneInfo, chance: random.Random) -> datetime:
    """A local time within two hours of a change of clocks."""
    while True:
        day = datetime(chance.randrange(1995, 2037), chance.randrange(1, 13), chance.randrange(1, 29))  # noqa: DTZ001
        for later in range(28):
            one, other = day + timedelta(days=later), day + timedelta(days=later + 1)
            if one.replace(tzinfo=zone).utcoffset() != other.replace(tzinfo=zone).utcoffset():
                return one + timedelta(seconds=chance.randrange(5 * HOUR))


def _exact(local: datetime, zone: ZoneInfo) -> str | None:
    """The time in UTC; None where it occurs twice or never."""
    early, late = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    return f"{early.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if early.utcoffset() == late.utcoffset() else None
