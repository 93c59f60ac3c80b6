"""Loads: wrk for rates, and one connection of our own for latencies and for the time to the first byte."""

import http.client
import json
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from bench.machine import BenchError, cpu_seconds, pinned
from bench.plan import Plan
from bench.results import Goal, Row

CONNECTIONS = 32
BATCH = 500  # orders that are shipped together
SCRIPT = Path(__file__).with_name("load.lua")
TIMEOUT = 60  # seconds that a load waits for one response
FRESH_PER_SECOND = 150_000  # requests with different identifiers that are prepared before a load

Kind = tuple[str | int | Path, ...]
SAME: Kind = ("same",)
FRESH: Kind = ("fresh",)
TRACED: Kind = ("traced",)
"""Identical requests, requests with a different X-Request-Id each, as the project's client sends them, and with a
different traceparent each, as traced programs send them."""


class Wrk(msgspec.Struct):
    """What `load.lua` reports. Times are in microseconds; `refused` counts statuses from 400 on."""

    requests: int
    microseconds: int
    refused: int
    timeout: int
    p50: int
    p99: int
    last: int


class Reading(msgspec.Struct):
    """One load: requests per second, latencies in milliseconds, processor time in microseconds per request."""

    rate: float
    p50: float = 0.0
    p99: float = 0.0
    last: int = 0
    costs: dict[str, float] = {}


def rated(
    name: str,
    title: str,
    unit: str,
    readings: Mapping[str, Sequence[Reading]],
    reference: str = "",
    goal: Goal | None = None,
    note: str = "",
) -> Row:
    """A row with the rates of loads, and the processor time that was watched in them."""
    samples = {load: [each.rate for each in found] for load, found in readings.items()}
    costs = {
        process: [each.costs[process] for each in found] for found in readings.values() for process in found[0].costs
    }
    return Row(name, title, unit, samples, reference, goal, costs, note)


class Load:
    """A load of wrk that runs until it is waited for, and ends after some seconds or when it is stopped."""

    def __init__(
        self,
        plan: Plan,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        kind: Kind = SAME,
        connections: int = CONNECTIONS,
        watch: Mapping[str, int] | None = None,
        seconds: int = 0,
    ) -> None:
        """Start; `seconds` is that of the plan unless it is given.

        `kind` and its arguments are those of `load.lua`. `watch` names processes (by identifier) whose processor time
        per request is to be read.
        """
        self._url = url
        self._watched = watch or {}
        self._before = {name: cpu_seconds(pid) for name, pid in self._watched.items()}
        limits = [f"-c{connections}", f"-d{seconds or plan.seconds}s", "--timeout", f"{TIMEOUT}s"]
        if kind in (FRESH, TRACED):
            kind = (*kind, f"{time.time_ns():016x}", FRESH_PER_SECOND * (seconds or plan.seconds))
        sent = {"Connection": "keep-alive", **(headers or {})}
        options = [part for name, value in sent.items() for part in ("-H", f"{name}: {value}")]
        command = pinned(plan.cores.load, ["wrk", "-t1", *limits, "-s", SCRIPT, *options, url, "--", *map(str, kind)])
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def stop(self) -> Reading:
        """End the load now; return what it measured."""
        self._process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> Reading:
        """Wait until the load ends. Every response must have been a success."""
        printed, _ = self._process.communicate()
        if self._process.returncode:
            raise BenchError(f"wrk ended with {self._process.returncode}: {printed[-500:]}")
        found = msgspec.json.decode(printed.rpartition("RESULT ")[2], type=Wrk)
        if found.refused or found.timeout or not found.requests:
            counts = f"{found.refused} refusals, {found.timeout} timeouts, {found.requests} responses"
            raise BenchError(f"{self._url}: {counts}")
        used = {name: cpu_seconds(pid) - self._before[name] for name, pid in self._watched.items()}
        return Reading(
            rate=found.requests / found.microseconds * 1e6,
            p50=found.p50 / 1000,
            p99=found.p99 / 1000,
            last=found.last,
            costs={name: seconds / found.requests * 1e6 for name, seconds in used.items()},
        )


class Successive:
    """A load with a new identifier in each request, which continues where it ended before.

    `start` starts a load; `kind` returns the load of `load.lua` that begins with an identifier.
    """

    def __init__(self, start: Callable[..., Load], kind: Callable[[int], Kind]) -> None:
        self._start = start
        self._kind = kind
        self.last = 0

    def start(self, **options: Any) -> Load:
        """Start to load with the identifiers that follow; the options are those of `Load`."""
        return self._start(kind=self._kind(self.last + 1), **options)

    def ended(self, reading: Reading) -> Reading:
        """Note where a load ended; return what it measured."""
        self.last = reading.last
        return reading

    def __call__(self, **options: Any) -> Reading:
        """Load for the seconds of the plan."""
        return self.ended(self.start(**options).wait())


def cancel(first: int) -> Kind:
    """Cancel orders, beginning with an identifier."""
    return "ids", first, "DELETE"


def ship(first: int) -> Kind:
    """Ship orders, beginning with an identifier."""
    return "ids", first, "POST", "/ship"


def ship_together(first: int) -> Kind:
    """Ship orders in batches, beginning with an identifier."""
    return "batch", first, BATCH


def place(first: int) -> Kind:
    """Place orders with numbered idempotency keys."""
    return "place", first


def place_with_reference(first: int) -> Kind:
    """Place orders with numbered idempotency keys, and with references."""
    return "place", first, "reference"


class Connection:
    """One connection that sends requests one after another, for latencies without load."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._peer = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT)
        self._headers = dict(headers or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()

    def get(self, target: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Request a target; return the response and its body."""
        return self._send("GET", target, None, headers)

    def cancel(self, order_id: int) -> None:
        """Cancel an order, which must be pending."""
        response, _ = self._send("DELETE", f"/v2/store/orders/{order_id}", None, {})
        if response.status != 204:
            raise BenchError(f"Order {order_id} was not cancelled: status {response.status}")

    def create(self, target: str, content: object) -> None:
        """Create a resource, which is sent as JSON."""
        response, body = self._send("POST", target, json.dumps(content), {"Content-Type": "application/json"})
        if response.status != 201:
            raise BenchError(f"{target}: status {response.status}: {body[:500]!r}")

    def _send(
        self, method: str, target: str, content: str | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        self._peer.request(method, target, content, {**self._headers, **headers})
        response = self._peer.getresponse()
        return response, response.read()

    def first_byte(self, target: str) -> float:
        """Milliseconds from sending a request to the head of its response; the body is read afterwards."""
        return self._times(target)[0]

    def latency(self, target: str) -> float:
        """Milliseconds from sending a request to the last byte of its response."""
        return self._times(target)[1]

    def _times(self, target: str) -> tuple[float, float]:
        began = time.perf_counter()
        self._peer.request("GET", target, headers=self._headers)
        response = self._peer.getresponse()
        head = time.perf_counter()
        response.read()
        end = time.perf_counter()
        if response.status >= 400:
            raise BenchError(f"{target}: status {response.status}")
        return (head - began) * 1000, (end - began) * 1000


def p99(times: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
