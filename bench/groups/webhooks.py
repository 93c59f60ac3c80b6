"""What webhooks cost: idle ones, the time to a delivery, and lists and cancels of others next to both."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from bench.access import add_keys, name_of_account
from bench.engines import Engines
from bench.load import Reading, cancel, rated
from bench.machine import BenchError, cpu_seconds, this_process_on
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import ACCOUNT, Running, Setup, Store
from testing.subprocesses import resident
from testing.threaded_receiver import ThreadedReceiver
from testing.webhook_messages import SETTINGS, Received

WEBHOOKS, OF_ACCOUNT = 1_000, 20
TOLD = 8  # webhooks that deliver every change, instead of as many idle ones
LISTED = 10  # orders of the account whose lists are measured
CANCELS_PER_SECOND = 20_000  # for which enough orders are imported
CHANGES = 20  # of each round in which the time to a delivery is measured
WARM_SECONDS = 4  # after a start: each webhook is looked at once
CHANGES_PER_SECOND = 20  # while lists are measured

WITHOUT, NONE, IDLE, TELLING = "without webhooks", "none", "idle", "telling"
_SCOPES = "orders:cancel orders:read webhooks:manage"


class Receiver(ThreadedReceiver):
    """Counts the `orders` that were delivered, and knows when one came."""

    def __init__(self) -> None:
        super().__init__()
        self.orders = 0
        self._arrived = threading.Condition()
        self._awaited, self._missing = 0, 0
        self._came_at = 0.0

    def take(self, message: Received) -> None:
        orders = message.orders
        with self._arrived:
            self.orders += len(orders)
            if self._missing and self._awaited in orders:
                self._missing, self._came_at = self._missing - 1, time.perf_counter()
                self._arrived.notify_all()

    def expect(self, order_id: int, times: int) -> None:
        """Note when this order has come so many times."""
        with self._arrived:
            self._awaited, self._missing = order_id, times

    def came_at(self, timeout: float) -> float:
        """Wait for the order that is expected; return when it had come, as `time.perf_counter` says.

        Raises TimeoutError after so many seconds.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: not self._missing, timeout):
                raise TimeoutError
            return self._came_at

    def await_quiet(self) -> None:
        """Return when nothing has come for a second."""
        orders = -1
        while orders != self.orders:
            orders = self.orders
            time.sleep(1)


def measure(plan: Plan) -> list[Row]:
    """Measure both engines: the same store without webhooks, with idle ones, and with some that deliver."""
    rows: list[Row] = []
    receiver = Receiver()
    with this_process_on(plan.cores.load), receiver.running(), Setup(plan) as setup:
        for engine, engines in {"SQLite": None, "PostgreSQL": setup.engines()}.items():
            progress(f"webhooks on {engine}")
            subject = _Subject(setup, engines, receiver)
            rows += [*_idle_rows(engine, subject), _delay_row(engine, subject), *_load_rows(engine, subject)]
    return rows


def _idle_rows(engine: str, subject: "_Subject") -> list[Row]:
    readings = interleaved(subject.plan.rounds, {kind: partial(subject.idle, kind) for kind in (WITHOUT, NONE, IDLE)})
    rounds = list(zip(*(readings[kind] for kind in (WITHOUT, NONE, IDLE)), strict=True))
    share = [100 * (idle.busy - without.busy) for without, _, idle in rounds]
    memory = [(idle.memory - none.memory) / subject.webhooks / 1024 for _, none, idle in rounds]
    shares = {kind: f"{100 * median(each.busy for each in found):.2g} %" for kind, found in readings.items()}
    client = median(none.memory - without.memory for without, none, _ in rounds) / 1e6
    notes = (
        f"{shares[IDLE]} of a core with them, {shares[WITHOUT]} {WITHOUT}.",
        f"Compared with a server that sends webhooks and has none; its HTTP client takes {client:.1f} MB.",
    )
    name, title = engine.lower(), f"{subject.webhooks:,} idle webhooks, {engine}"
    goals = Goal(1, at_most=True, absolute=True), Goal(4, at_most=True, absolute=True)
    time_of, memory_of = f"Processor time of {title}", f"Memory of each of {title}"
    return [
        Row(f"webhooks-idle-time-{name}", time_of, "%", {PRODUCT: share}, goal=goals[0], note=notes[0]),
        Row(f"webhooks-idle-memory-{name}", memory_of, "KB", {PRODUCT: memory}, goal=goals[1], note=notes[1]),
    ]


def _delay_row(engine: str, subject: "_Subject") -> Row:
    found = [subject.delays() for _ in range(subject.plan.rounds)]
    samples = {"half within": [median(times) for times in found], "slowest": [max(times) for times in found]}
    title = f"From a change to its delivery to {TOLD} of {subject.webhooks:,} webhooks, {engine}"
    return Row(f"webhooks-delay-{engine.lower()}", title, "ms", samples, goal=Goal(1_000, at_most=True, absolute=True))


def _load_rows(engine: str, subject: "_Subject") -> list[Row]:
    loads = {name: partial(subject.loads, name) for name in (WITHOUT, IDLE, TELLING)}
    readings = interleaved(subject.plan.rounds, loads)
    titles = {
        IDLE: f"next to {subject.webhooks:,} idle webhooks",
        TELLING: f"next to {subject.webhooks:,} webhooks, {TOLD} of which deliver all changes",
    }
    rows = []
    for kind, each in titles.items():
        for number, (unit, title) in enumerate(
            {"lists": f"List of {LISTED} orders", "cancels": "Durable cancel"}.items()
        ):
            samples = {PRODUCT: [found[number] for found in readings[kind]]}
            samples[WITHOUT] = [found[number] for found in readings[WITHOUT]]
            goal = Goal(0.95) if kind == IDLE else None
            name = f"webhooks-{kind}-{unit}-{engine.lower()}"
            rows.append(rated(name, f"{title} {each}, {engine}", f"{unit}/s", samples, WITHOUT, goal))
    return rows


class _Idle:
    """What a server takes that does nothing: a share of a core, with its engines, and bytes of memory."""

    def __init__(self, server: Running, seconds: float) -> None:
        before, began = self._used(server), time.perf_counter()
        time.sleep(seconds)
        self.busy = (self._used(server) - before) / (time.perf_counter() - began)
        self.memory = resident(server.pid)

    def _used(self, server: Running) -> float:
        return sum(map(cpu_seconds, server.watch.values()))


class _Subject:
    """Three stores on one engine: without webhooks, with idle ones, and with some that deliver.

    The server of WITHOUT has no webhooks; that of NONE could have some, on the same store.
    """

    def __init__(self, setup: Setup, engines: Engines | None, receiver: Receiver) -> None:
        self.plan = setup.plan
        self.webhooks = self.plan.size(WEBHOOKS, 2 * OF_ACCOUNT)
        self._engines = engines
        self._receiver = receiver
        self._idle_seconds = self.plan.size(10, 3)
        seconds = self.plan.rounds * (self.plan.seconds + 1)
        self._orders = min(CANCELS_PER_SECOND * seconds, self.plan.size(1_000_000, 20_000))
        self._file = _orders_file(self.plan.folder / "told.jsonl", self._orders)
        self._keys: dict[str, str] = {}  # of the account whose lists are measured
        self._next = {name: count(LISTED + 1) for name in (WITHOUT, IDLE, TELLING)}
        self._stores = {name: self._store(setup, name) for name in (WITHOUT, IDLE, TELLING)}

    def _store(self, setup: Setup, name: str) -> Store:
        store = setup.store(0, self._engines)
        [self._keys[name]] = add_keys(store, 1, orders="own")
        store.petstore("orders", "import", self._file)
        half = self.webhooks // OF_ACCOUNT // 2
        own = add_keys(store, half, orders="own", scopes=_SCOPES, first=1)
        shown = add_keys(store, half, scopes=_SCOPES, first=1 + half)
        if self._engines is not None:
            self._engines.postgres.execute(store.url, "VACUUM ANALYZE;\nCHECKPOINT")
        if name == WITHOUT:
            return store
        with Setup(self.plan) as starting:
            server = starting.petstore(store, **SETTINGS)
            told = TOLD if name == TELLING else 0
            for key in own:
                _create(server, key, OF_ACCOUNT, {"url": self._receiver.url})
            for index, key in enumerate(shown):  # no order gets this status
                number = OF_ACCOUNT if index else OF_ACCOUNT - told
                _create(server, key, number, {"url": self._receiver.url, "statuses": ["shipped"]})
            _create(server, shown[0], told, {"url": self._receiver.url})
            with server.connection() as connection:  # webhooks with statuses stay idle after changes too
                connection.cancel(next(self._next[name]))
        return store

    @contextmanager
    def _serving(self, name: str) -> Iterator[Running]:
        """A server that has looked at each webhook."""
        with Setup(self.plan) as setup:
            store = self._stores[WITHOUT if name == NONE else name]
            server = setup.petstore(store, **({} if name == WITHOUT else SETTINGS))
            time.sleep(WARM_SECONDS)
            self._receiver.await_quiet()
            yield server

    def idle(self, name: str) -> _Idle:
        with self._serving(name) as server:
            return _Idle(server, self._idle_seconds)

    def delays(self) -> list[float]:
        """Milliseconds from the responses to changes at random times to the arrival of the last of their messages."""
        found, chance = [], random.Random(0)
        with self._serving(TELLING) as server, server.connection() as connection:
            for _ in range(CHANGES):
                time.sleep(chance.uniform(0.3, 0.8))
                order_id = next(self._next[TELLING])
                self._receiver.expect(order_id, TOLD)
                connection.cancel(order_id)
                changed = time.perf_counter()
                found.append(1000 * (self._receiver.came_at(60) - changed))
        return found

    def loads(self, name: str) -> tuple[Reading, Reading]:
        """Lists while few orders change, and then cancels."""
        with self._serving(name) as server:
            with _changing(server, self._next[name]):
                lists = server.with_key(self._keys[name]).wrk(LIST)
            cancels = server.successive(LIST, cancel)
            cancels.last = next(self._next[name])
            told = self._receiver.orders
            reading = cancels()
            self._next[name] = count(cancels.last + 1)
            if name == TELLING and self._receiver.orders == told:
                raise BenchError("No webhook has delivered a change.")
            return lists, reading


@contextmanager
def _changing(server: Running, orders: "count[int]") -> Iterator[None]:
    """Cancel some orders a second."""
    ended = threading.Event()

    def change() -> None:
        with server.connection() as connection:
            while not ended.wait(1 / CHANGES_PER_SECOND):
                connection.cancel(next(orders))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _create(server: Running, key: str, number: int, webhook: dict[str, object]) -> None:
    """Create so many webhooks, each from now on."""
    with server.with_key(key).connection() as connection:
        for _ in range(number):
            connection.create("/v2/webhooks", webhook)


def _orders_file(file: Path, orders: int) -> Path:
    """A JSON Lines file of pending orders: the first few are of the first account that `add_keys` makes."""
    with file.open("w") as output:
        for number in range(1, orders + 1):
            account = name_of_account(0) if number <= LISTED else ACCOUNT
            output.write(f"{json.dumps({'id': number, 'petId': number % 977, 'quantity': 1, 'account': account})}\n")
    return file
