"""What a line of log for every request would cost, beside all else the application does for a small request.

    python bench/log_line.py

One application over a scratch store answers `GET /v1/store/orders` of ten orders without a socket: the gate, the
look-up of the key, both windows, the headers and the body. The same requests are then answered with the level
`debug`, at which each writes one line, to a file as in a service. Rounds of the two alternate, and the medians count.
Sockets and parsing are left out, for logging does not touch them; with them the ratio is smaller.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, TextIO

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, digest, new_key
from petstore_server.domain.orders import Order
from petstore_server.ports import By
from petstore_server.runtime.application import Application
from petstore_server.runtime.backend import Backend, open_backend
from petstore_server.settings import Settings, read_settings
from petstore_server.telemetry.logs import configure_logging

ROUNDS = 21
REQUESTS = 2_000  # in a round
NO_LIMIT = Limits(1_000_000_000, 1_000_000_000)


async def main(folder: Path) -> None:
    settings = read_settings({"PETSTORE_DATABASE_URL": f"sqlite:///{folder / 'store.db'}"})
    configure_logging("info")
    backend = await open_backend(settings, time.time, lambda _: None)
    try:
        key = await _fill(backend)
        with (folder / "log").open("w") as log:
            silent, logged = await _measure(settings, backend, key, log)
    finally:
        await backend.close()
    line = logged - silent
    print(f"a small request without its line   {silent:6.1f} µs")
    print(f"the line                           {line:6.1f} µs")
    print(f"the line in proportion             {line / silent:6.2f}")


async def _fill(backend: Backend) -> str:
    """Put ten orders into the store, and an account with a key, which is returned."""
    by = By("operator:bench", time.time())
    await backend.store.orders.import_batch([Order(number, 1, 1) for number in range(1, 11)], "bench", by)
    await backend.store.accounts.create("bench", Plan.ENTERPRISE, NO_LIMIT, by)
    key = new_key(Environment.PRODUCTION, lambda below: below - 1)
    entry = ApiKey("key_bench", "bench", digest(key), Environment.PRODUCTION, DEFAULT_SCOPES, "", by.at)
    await backend.store.keys.create(entry, by)
    return key


async def _measure(settings: Settings, backend: Backend, key: str, log: TextIO) -> tuple[float, float]:
    """Microseconds of a request without a line, and with one."""
    applications = []
    for level in ("info", "debug"):
        configure_logging(level, log)
        applications.append(Application(settings, backend, time.time, lambda size: "r" * size))
    times: tuple[list[float], list[float]] = [], []
    for _ in range(ROUNDS):
        for level, application, found in zip(("info", "debug"), applications, times, strict=True):
            configure_logging(level, log)
            found.append(await _round(application, key))
    return statistics.median(times[0]), statistics.median(times[1])


async def _round(application: Application, key: str) -> float:
    """Microseconds a request took."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "raw_path": b"/v1/store/orders",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())],
        "client": ("127.0.0.1", 50_000),
    }
    application.confirm(False)
    began = time.perf_counter()
    for _ in range(REQUESTS):
        await application.gate(scope, _receive, _send)
    return (time.perf_counter() - began) / REQUESTS * 1e6


async def _receive() -> Mapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(message: MutableMapping[str, Any]) -> None:
    if message["type"] == "http.response.start" and message["status"] != 200:
        raise SystemExit(f"answered {message['status']}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
