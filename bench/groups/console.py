"""Pages of the operator console with 1,000,000 orders, 10,000 accounts, 300,000 changes and 60 bans, without load."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from bench import access
from bench.load import Connection
from bench.machine import BenchError, this_process_on
from bench.plan import Plan, progress
from bench.results import Goal, Row
from bench.setup import Setup, Store

PAGES = (
    "",
    "accounts",
    "accounts?sort=-share",
    "accounts?state=banned&plan=enterprise",
    "accounts?search=99",
    "accounts/Account%201000007",
    "bans",
    "?period=day",
    "?period=week",
    "orders",
    "orders?status=shipped&sort=-shipDate",
    "orders?petId=7&sort=-updatedAt",
    "orders/7",
    "audit",
    "audit?actor=unknown",
    "audit?actor=op3&action=account.set_plan",
    "audit?subject=Account%201000007",
    "audit?request=abc123-ffff",
    "imports",
    "imports/new",
)
MAX_PAGE_BYTES = 200_000  # bytes of a page
_READINGS = 5
_BANS = 60


def measure(plan: Plan) -> list[Row]:
    """Measure each page several times on both engines."""
    orders, accounts = plan.size(1_000_000, 10_000), plan.size(10_000, 200)
    progress(f"the console with {orders:,} orders and {accounts:,} accounts on both engines")
    found = {}
    for name in ("SQLite", "PostgreSQL"):
        with Setup(plan) as setup:
            store = setup.store(orders, setup.engines() if name == "PostgreSQL" else None, varied=True)
            found[name] = _times(setup, store, accounts)
    slowest = {name: max(PAGES[1:], key=lambda page: max(times[page])) for name, times in found.items()}
    first = {name: times[""] for name, times in found.items()}
    others = {name: times[slowest[name]] for name, times in found.items()}
    note = ", ".join(f"{name} `/console/{page}`" for name, page in slowest.items())
    return [
        Row("console-first", "Console, first page", "ms", first, goal=Goal(100, at_most=True, absolute=True)),
        Row(
            "console-slowest",
            "Console, slowest other page",
            "ms",
            others,
            goal=Goal(300, at_most=True, absolute=True),
            note=note,
        ),
    ]


def _times(setup: Setup, store: Store, accounts: int) -> dict[str, list[float]]:
    """Milliseconds that each page takes; a page of more than 200 kB is an error."""
    access.add_keys(store, accounts)
    access.add_usage(store, accounts)
    access.add_bans(store, _BANS)
    access.add_audit(store, 30 * accounts, accounts)
    times: dict[str, list[float]] = {page: [] for page in PAGES}
    plan, server = setup.plan, setup.petstore(store)
    with this_process_on(plan.cores.load), _signed_in(store, server.admin) as peer:
        _wait_until_counted(peer)
        for page in PAGES:
            size = len(peer.get(f"/console/{page}")[1])
            if size > MAX_PAGE_BYTES:
                raise BenchError(f"/console/{page} has {size:,} bytes.")
        for _ in range(_READINGS * plan.rounds):
            for page, readings in times.items():
                readings.append(peer.latency(f"/console/{page}"))
    return times


@contextmanager
def _signed_in(store: Store, admin: str) -> Iterator[Connection]:
    """A connection to the admin port with the cookie of a session."""
    link = urlsplit(re.findall(r"http\S+", store.petstore("console", "--as", "bench", "--url", admin))[0])
    with Connection(admin) as peer:
        cookie = peer.get(f"{link.path}?{link.query}")[0].headers["Set-Cookie"].partition(";")[0]
    with Connection(admin, {"Cookie": cookie}) as peer:
        yield peer


def _wait_until_counted(peer: Connection) -> None:
    """Wait until the first statistics were computed."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        found = [peer.get(f"/console/{page}") for page in PAGES]
        if all(response.status == 200 and b"being counted" not in body for response, body in found):
            return
        time.sleep(0.5)
    raise BenchError("The console does not show its statistics after five minutes.")
