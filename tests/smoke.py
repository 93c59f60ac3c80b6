"""Whether an installed service works: start, place, list, cancel, conflict, page, refused key, parallel requests, stop.

    python tests/smoke.py .venv/bin/petstore                  a command: makes a store, serves it, and stops the server
    PETSTORE_API_KEY=KEY python tests/smoke.py --url URL      a server that runs; the key needs the scope orders:write

It uses only the standard library, so that it runs wherever Python does, with whatever Python that is.
"""

import argparse
import http.client
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATIENCE = 60.0
"""Seconds that a busy machine may need for a step."""

CLIENTS, REQUESTS = 8, 10
"""Connections at the same time, and lists that each requests."""


class Response(NamedTuple):
    status: int
    headers: "http.client.HTTPMessage"
    body: Any  # what the JSON holds; None without a body


class Service:
    """A server, as a client of the standard library sees it."""

    def __init__(self, url: str, key: str) -> None:
        self._address = urlsplit(url)
        self._key = key

    def connect(self) -> http.client.HTTPConnection:
        secure = self._address.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(self._address.netloc, timeout=PATIENCE)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        connection: http.client.HTTPConnection | None = None,
        key: str | None = None,
        **headers: str,
    ) -> Response:
        """Send one request, over a new connection unless one is given."""
        content = None if body is None else json.dumps(body)
        sent = {"Authorization": f"Bearer {self._key if key is None else key}"}
        sent |= {"Content-Type": "application/json"} if content else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        used = connection or self.connect()
        try:
            used.request(method, self._address.path + path, content, sent)
            response = used.getresponse()
            text = response.read()
        finally:
            if connection is None:
                used.close()
        return Response(response.status, response.headers, json.loads(text) if text else None)


def expect(wanted: object, got: object) -> None:
    """Raise AssertionError unless they are equal, also where Python leaves out assert statements."""
    if wanted != got:
        raise AssertionError(f"expected {wanted!r}, got {got!r}")


def place(service: Service) -> int:
    """Place an order, and return its identifier."""
    key = f"smoke-{time.time_ns()}"
    placed = service.ask("POST", "/v2/store/orders", {"petId": 1, "quantity": 2}, Idempotency_Key=key)
    expect((201, "pending"), (placed.status, placed.body.get("status")))
    again = service.ask("POST", "/v2/store/orders", {"petId": 1, "quantity": 2}, Idempotency_Key=key)
    expect((201, placed.body), (again.status, again.body))
    return int(placed.body["id"])


def a_list_has_every_order(service: Service) -> None:
    order = place(service)
    listed = service.ask("GET", "/v1/store/orders")
    expect((200, True), (listed.status, order in [each["id"] for each in listed.body]))
    for name in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"):
        expect(1, len(listed.headers.get_all(name, [])))
    expect(304, service.ask("GET", "/v1/store/orders", If_None_Match=listed.headers["ETag"]).status)


def an_order_is_cancelled_once(service: Service) -> None:
    order = f"/v1/store/orders/{place(service)}"
    expect(204, service.ask("DELETE", order).status)
    again = service.ask("DELETE", order)
    expect((409, "order_already_cancelled"), (again.status, again.body["code"]))
    unknown = service.ask("DELETE", "/v1/store/orders/-1")
    expect((404, "order_not_found"), (unknown.status, unknown.body["code"]))


def pages_hold_every_order_once(service: Service) -> None:
    ids = {place(service) for _ in range(3)}
    found: list[int] = []
    query: str | None = "?status=pending&limit=2"
    while query is not None:
        page = service.ask("GET", f"/v2/store/orders{query}")
        expect(200, page.status)
        found += [each["id"] for each in page.body["data"]]
        cursor = page.body.get("nextCursor")
        query = cursor and f"?status=pending&limit=2&cursor={cursor}"
    expect((True, len(set(found))), (ids <= set(found), len(found)))


def a_wrong_key_is_refused(service: Service) -> None:
    for key in ("wrong", "pso_live_" + "0" * 33):
        refused = service.ask("GET", "/v1/store/orders", key=key)
        expect((401, "invalid_api_key"), (refused.status, refused.body["code"]))


def parallel_requests_are_all_answered(service: Service) -> None:
    def lists(_: int) -> set[int]:
        connection = service.connect()
        try:
            return {service.ask("GET", "/v1/store/orders", connection=connection).status for _ in range(REQUESTS)}
        finally:
            connection.close()

    with ThreadPoolExecutor(CLIENTS) as clients:
        expect([{200}] * CLIENTS, list(clients.map(lists, range(CLIENTS))))


def one_of_several_cancels_succeeds(service: Service) -> None:
    order = f"/v1/store/orders/{place(service)}"
    with ThreadPoolExecutor(CLIENTS) as clients:
        statuses = clients.map(lambda _: service.ask("DELETE", order).status, range(CLIENTS))
        expect(Counter({409: CLIENTS - 1, 204: 1}), Counter(statuses))


CHECKS: tuple[Callable[[Service], None], ...] = (
    a_list_has_every_order,
    an_order_is_cancelled_once,
    pages_hold_every_order_once,
    a_wrong_key_is_refused,
    parallel_requests_are_all_answered,
    one_of_several_cancels_succeeds,
)


def run(service: Service) -> int:
    """Run all checks against a server; return how many there are. Raises AssertionError."""
    for check in CHECKS:
        passed(check.__name__.replace("_", " "), lambda check=check: check(service))  # type: ignore[misc]
    return len(CHECKS)


def passed(name: str, check: Callable[[], object]) -> None:
    """Run one check, and print that it passed. What it raises names the check."""
    try:
        check()
    except (AssertionError, OSError, ValueError, KeyError, http.client.HTTPException) as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    print(f"ok  {name}", flush=True)


def run_command(petstore: str) -> int:
    """Make a store with the command, serve it, run all checks, and stop the server; return how many checks passed."""
    with tempfile.TemporaryDirectory(prefix="petstore-smoke-") as folder:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PETSTORE_")}
        environ["PETSTORE_DATABASE_URL"] = f"sqlite:///{folder}/orders.db"

        def command(*arguments: str, text: str = "") -> str:
            done = subprocess.run(
                [petstore, *arguments], input=text, env=environ, capture_output=True, text=True, timeout=PATIENCE
            )
            if done.returncode != 0:
                raise AssertionError(f"petstore {' '.join(arguments)} exited with {done.returncode}: {done.stderr}")
            return done.stdout.strip()

        command("db", "migrate")
        command("orders", "import", "-", "--format", "jsonl", text='{"id":1,"petId":1}\n{"id":2,"status":"shipped"}\n')
        command("accounts", "create", "smoke", "--plan", "enterprise", "--per-minute", "10000", "--per-day", "10000")
        scopes = [each for scope in ("orders:read", "orders:cancel", "orders:write") for each in ("--scope", scope)]
        key = command("keys", "create", "smoke", *scopes)
        serve = [petstore, "serve", "--port", "0", "--admin-port", "0"]
        log = Path(folder, "log")
        with log.open("w") as stderr, subprocess.Popen(serve, env=environ, stderr=stderr) as server:
            try:
                addresses: dict[str, str] = {}
                passed("the server starts", lambda: addresses.update(started(server, log)))
                count = run(Service(addresses["api"], key))
                passed(
                    "the command line sees the orders", lambda: expect(True, "cancelled" in command("orders", "list"))
                )
                server.send_signal(signal.SIGTERM)
                passed("the server stops", lambda: expect(0, server.wait(PATIENCE)))
            finally:
                server.kill()
        passed("the log has no errors", lambda: expect([], [line for line in log.open() if '"error"' in line]))
        return count + 4


def started(server: "subprocess.Popen[bytes]", log: Path) -> dict[str, str]:
    """Wait until the server is ready, and return what it logs then. Raises AssertionError if it ends, or takes long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        ended = server.poll() is not None
        for line in log.read_text().splitlines():
            if '"event":"serving"' in line:
                fields: dict[str, str] = json.loads(line)
                expect(200, Service(fields["admin"], "").ask("GET", "/readyz").status)
                return fields
        if ended or time.monotonic() > deadline:
            raise AssertionError(f"it did not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", nargs="?", help="the path of the command petstore")
    parser.add_argument("--url", help="the address of a server that runs, such as http://127.0.0.1:8080")
    given = parser.parse_args()
    key = os.environ.get("PETSTORE_API_KEY", "")  # not an option: all users of a machine see those
    if bool(given.command) == bool(given.url and key):
        parser.error("give either a command, or --url and, in PETSTORE_API_KEY, a key with every scope for orders")
    try:
        count = run_command(given.command) if given.command else run(Service(given.url, key))
    except AssertionError as failure:
        sys.exit(f"failed  {failure}\nPython {platform.python_version()}: 0 passed, 1 failed")
    print(f"{count} passed, 0 failed")


if __name__ == "__main__":
    main()
