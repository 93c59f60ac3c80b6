"""Lists per second against nginx sending the same bytes, and against other services with the same orders."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from bench import rivals
from bench.load import Connection, Reading, wrk
from bench.plan import Plan, interleaved, progress
from bench.results import EVENT_LOOP, PRODUCT, Curve, Goal, Row
from bench.servers import nginx, petstore
from bench.stores import LIST, sqlite_store

UNIT = "lists/s"
GZIP = {"Accept-Encoding": "gzip"}
Load = Callable[[], Reading]


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure short, middling and long lists, unchanged ones and compressed ones."""
    rows = []
    for orders in plan.pick((10, 1_000, 100_000), (10, 1_000)):
        progress(f"lists of {orders:,} orders")
        rows += _of_size(plan, orders)
    return rows, []


def _of_size(plan: Plan, orders: int) -> list[Row]:
    with ExitStack() as stack:
        subject = _Subject(plan, stack, orders)
        if orders == 10:
            reference, goal = "nginx `return 200`", Goal(0.45, aim=0.6)
            loads = subject.ours() | subject.nginx("/fixed") | subject.event_loop() | _rival_loads(plan, stack, orders)
            return [_row("list-10", "List of 10 orders", reference, goal, plan, loads)]
        reference, goal = "nginx, the same bytes", Goal(0.8, aim=0.9) if orders == 1_000 else Goal(0.9)
        loads = subject.ours() | subject.nginx("/list")
        if orders == 1_000:
            loads |= subject.event_loop() | _rival_loads(plan, stack, orders)
        rows = [_row(f"list-{orders}", f"List of {orders:,} orders", reference, goal, plan, loads)]
        loads = subject.ours(GZIP) | subject.nginx("/list", GZIP)
        name, title, reference = f"list-{orders}-gzip", f"List of {orders:,} orders, gzip", "nginx `gzip_static`"
        rows.append(_row(name, title, reference, Goal(0.8), plan, loads))
        if orders == 1_000:
            loads = subject.ours({"If-None-Match": subject.etag})
            loads |= subject.nginx("/list", {"If-None-Match": subject.nginx_etag()})
            rows.append(_row("list-unchanged", "Unchanged list (304)", "nginx 304", Goal(0.45), plan, loads))
        return rows


class _Subject:
    """Servers of the product over stores of one size, and nginx with the same bytes."""

    def __init__(self, plan: Plan, stack: ExitStack, orders: int) -> None:
        self._plan = plan
        self._stack = stack
        folder = stack.enter_context(plan.scratch())
        self._stores = {
            name: stack.enter_context(sqlite_store(plan, orders, command=command))
            for name, command in plan.products.items()
        }
        self._servers = {name: stack.enter_context(petstore(plan, store)) for name, store in self._stores.items()}
        with Connection(self._servers[PRODUCT].url, self._stores[PRODUCT].authorization) as connection:
            plain, body = connection.get(LIST)
            (folder / "list").write_bytes(body)
            (folder / "list.gz").write_bytes(connection.get(LIST, **GZIP)[1])
        self.etag = plain.headers["ETag"]
        self._folder, self._body = folder, body
        self._nginx = stack.enter_context(nginx(plan, folder, body if orders == 10 else b""))

    def ours(self, headers: Mapping[str, str] | None = None) -> dict[str, Load]:
        """A load of the list for the product, and for the baseline if there is one."""
        return {
            name: partial(
                wrk,
                self._plan,
                server.url + LIST,
                headers={**self._stores[name].authorization, **(headers or {})},
                watch={PRODUCT: server.pid},
            )
            for name, server in self._servers.items()
        }

    def nginx(self, path: str, headers: Mapping[str, str] | None = None) -> dict[str, Load]:
        """A load of the reference."""
        watch = {"nginx": self._nginx.pid}
        return {"nginx": partial(wrk, self._plan, self._nginx.url + path, headers=headers, watch=watch)}

    def event_loop(self) -> dict[str, Load]:
        """A load of a protocol that sends the bytes of the list and does nothing else."""
        server = self._stack.enter_context(rivals.fixed_bytes(self._plan, self._folder, self._body))
        return {EVENT_LOOP: partial(wrk, self._plan, server.url, watch={EVENT_LOOP: server.pid})}

    def nginx_etag(self) -> str:
        with Connection(self._nginx.url) as connection:
            return connection.get("/list")[0].headers["ETag"]


def _rival_loads(plan: Plan, stack: ExitStack, orders: int) -> dict[str, Load]:
    """Loads of the services that people would pick instead; those on Node.js only where npm is available."""
    running = {rivals.FASTAPI: stack.enter_context(rivals.fastapi(plan, orders))}
    missing = rivals.npm_missing()
    if missing:
        progress(f"without json-server and Prism: {missing}")
    else:
        running[rivals.JSON_SERVER] = stack.enter_context(rivals.json_server(plan, orders))
        if orders == 10:
            running[rivals.PRISM] = stack.enter_context(rivals.prism(plan))
    return {name: partial(wrk, plan, rival.list_url, headers=rival.headers) for name, rival in running.items()}


def _row(name: str, title: str, reference: str, goal: Goal, plan: Plan, loads: dict[str, Load]) -> Row:
    """Run the loads in interleaved rounds; "nginx" is the reference."""
    readings = interleaved(plan.rounds, loads)
    samples = {
        reference if load == "nginx" else load: [each.rate for each in found] for load, found in readings.items()
    }
    costs = {
        process: [each.costs[process] for each in readings[process]]
        for process in (PRODUCT, "nginx", EVENT_LOOP)
        if process in readings
    }
    return Row(name, title, UNIT, samples, reference, goal, costs)
