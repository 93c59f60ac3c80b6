"""Pages of the operator console with 1,000,000 orders and 10,000 accounts, without load."""

import asyncio
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from bench.engines import postgres, redis_server
from bench.load import Connection
from bench.machine import BenchError, this_process_on
from bench.plan import Plan, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import petstore
from bench.stores import Store, make_store, shared
from petstore_server.domain.accounts import PLAN_LIMITS
from petstore_server.domain.accounts import Plan as AccountPlan
from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import DEFAULT_SCOPES, Environment
from petstore_server.domain.usage import Activity, Usage, UsageCounts
from petstore_server.domain.windows import Count
from petstore_server.operations.accounts import create_account
from petstore_server.operations.keys import issue_key
from petstore_server.runtime.engines import open_store

PAGES = (
    "",
    "accounts",
    "accounts?sort=share",
    "accounts?search=99",
    "accounts/Account%2000007",
    "orders",
    "orders?status=shipped&sort=-shipDate",
    "orders?petId=7&sort=-updatedAt",
    "orders/7",
    "audit",
    "audit?actor=unknown",
    "imports/new",
)
HOURS = 24
_AT_ONCE = 8  # as many as a process has connections to PostgreSQL
_SAVED = 100  # accounts whose usage is saved in one transaction
_READINGS = 5


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure each page several times: the first page, the slowest other page, and the largest page."""
    orders, accounts = plan.size(1_000_000, 10_000), plan.size(10_000, 200)
    progress(f"the console with {orders:,} orders and {accounts:,} accounts on both engines")
    rows: list[Row] = []
    with plan.scratch() as folder:
        rows += _measure(plan, make_store(plan, folder, orders, varied=True), accounts, "SQLite")
    with postgres(plan, plan.cores.database) as engine, redis_server(plan, 0) as counters, plan.scratch() as folder:
        store = make_store(plan, folder, orders, settings=shared(engine, counters), varied=True)
        rows += _measure(plan, store, accounts, "PostgreSQL")
    return rows, []


def _measure(plan: Plan, store: Store, accounts: int, engine: str) -> list[Row]:
    asyncio.run(_add_accounts(store.environment["PETSTORE_DATABASE_URL"], accounts))
    times: dict[str, list[float]] = {page: [] for page in PAGES}
    largest = 0
    with petstore(plan, store) as server, this_process_on(plan.cores.load), _signed_in(store, server.admin) as peer:
        _wait_until_current(peer)
        for _ in range(_READINGS * plan.rounds):
            for page, readings in times.items():
                largest = max(largest, len(peer.get(f"/console/{page}")[1]))
                readings.append(peer.latency(f"/console/{page}"))
    slowest = max(PAGES[1:], key=lambda page: max(times[page]))
    key = engine.lower()
    note = f"{largest / 1000:.0f} kB is the largest of {len(PAGES)} pages. The slowest is `/console/{slowest}`."
    return [
        Row(
            f"console-first-{key}",
            f"First page, {engine}",
            "ms",
            {PRODUCT: times[""]},
            goal=Goal(100, at_most=True, absolute=True),
        ),
        Row(
            f"console-slowest-{key}",
            f"Slowest other page, {engine}",
            "ms",
            {PRODUCT: times[slowest]},
            goal=Goal(300, at_most=True, absolute=True),
            note=note,
        ),
    ]


@contextmanager
def _signed_in(store: Store, admin: str) -> Iterator[Connection]:
    """A connection to the admin port with the cookie of a session."""
    link = urlsplit(re.findall(r"http\S+", store.petstore("console", "--as", "bench", "--url", admin))[0])
    with Connection(admin) as peer:
        cookie = peer.get(f"{link.path}?{link.query}")[0].headers["Set-Cookie"].partition(";")[0]
    with Connection(admin, {"Cookie": cookie}) as peer:
        yield peer


def _wait_until_current(peer: Connection) -> None:
    """Wait until the search index has all orders, and the first statistics were computed."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        found = [peer.get(f"/console/{page}") for page in ("orders?petId=7&sort=-updatedAt", "accounts", "")]
        if all(response.status == 200 and b"being counted" not in body for response, body in found):
            return
        time.sleep(0.5)
    raise BenchError("The console does not show all orders five minutes after their import.")


async def _add_accounts(url: str, number: int) -> None:
    """Accounts with a key and a day of usage each, through the operations of the product."""
    store = await open_store(url)
    now = time.time()
    actor = Actor("operator:bench", now - 100 * 86_400)
    names = [f"Account {each:05}" for each in range(number)]

    async def add(name: str) -> tuple[int, str]:
        account = await create_account(store, name, AccountPlan.PRO, PLAN_LIMITS[AccountPlan.PRO], actor)
        issued = await issue_key(
            store,
            name,
            environment=Environment.PRODUCTION,
            scopes=DEFAULT_SCOPES,
            expires_at=None,
            note="",
            actor=actor,
            randbelow=secrets.randbelow,
        )
        return account.id, issued.key.id

    try:
        added = []
        for first in range(0, number, _AT_ONCE):
            added += await asyncio.gather(*map(add, names[first : first + _AT_ONCE]))
        hour = int(now // 3600) * 3600
        for first in range(0, number, _SAVED):
            some = added[first : first + _SAVED]
            used = {account: Usage(Count(), Count(int(now) - 3600, account % 10_000)) for account, _ in some}
            starts = range(hour - (HOURS - 1) * 3600, hour + 1, 3600)
            counts = {
                (account, start): UsageCounts(account % 500, account % 9) for account, _ in some for start in starts
            }
            await store.usage.save(used, [], Activity(counts, {}, {key: hour for _, key in some}))
    finally:
        await store.close()
