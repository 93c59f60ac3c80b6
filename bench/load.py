"""Loads: wrk for rates, and one connection of our own for latencies and for the time to the first byte."""

import http.client
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.machine import BenchError, cpu_seconds, pinned
from bench.plan import Plan, run

CONNECTIONS = 32
SCRIPT = Path(__file__).with_name("load.lua")
TIMEOUT = 60  # seconds that a load waits for one response


class Wrk(msgspec.Struct):
    """What `load.lua` reports. Times are in microseconds; `refused` counts statuses from 400 on."""

    requests: int
    microseconds: int
    refused: int
    connect: int
    read: int
    write: int
    timeout: int
    p50: int
    p99: int
    last: int


class Reading(msgspec.Struct):
    """One load: requests per second, latencies in milliseconds, processor time in microseconds per request."""

    rate: float
    p50: float
    p99: float
    last: int = 0
    costs: dict[str, float] = {}


def wrk(
    plan: Plan,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    kind: Sequence[str | int | Path] = ("same",),
    connections: int = CONNECTIONS,
    watch: Mapping[str, int] | None = None,
) -> Reading:
    """Load a URL from the load core for `plan.seconds`; every response must be a success.

    `kind` and its arguments are those of `load.lua`. `watch` names processes (by identifier) whose processor time per
    request is to be read.
    """
    watched = watch or {}
    before = {name: cpu_seconds(pid) for name, pid in watched.items()}
    command: list[str | Path] = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{plan.seconds}s",
        "--timeout",
        f"{TIMEOUT}s",
        "-s",
        SCRIPT,
    ]
    sent = {"Connection": "keep-alive", **(headers or {})}
    options = [part for name, value in sent.items() for part in ("-H", f"{name}: {value}")]
    printed = run([*pinned(plan.cores.load, [*command, *options, url, "--", *map(str, kind)])])
    found = msgspec.json.decode(printed.rpartition("RESULT ")[2], type=Wrk)
    if found.refused or found.timeout or not found.requests:
        raise BenchError(f"{url}: {found.refused} refusals, {found.timeout} timeouts, {found.requests} responses")
    used = {name: cpu_seconds(pid) - before[name] for name, pid in watched.items()}
    return Reading(
        rate=found.requests / found.microseconds * 1e6,
        p50=found.p50 / 1000,
        p99=found.p99 / 1000,
        last=found.last,
        costs={name: seconds / found.requests * 1e6 for name, seconds in used.items()},
    )


class Connection:
    """One connection that sends requests one after another, for latencies without load."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._peer = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT)
        self._headers = dict(headers or {})

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()

    def get(self, target: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Request a target; return the response and its body."""
        self._peer.request("GET", target, headers=self._headers | headers)
        response = self._peer.getresponse()
        return response, response.read()

    def first_byte(self, target: str) -> float:
        """Milliseconds from sending a request to the head of its response; the body is read afterwards."""
        began = time.perf_counter()
        self._peer.request("GET", target, headers=self._headers)
        response = self._peer.getresponse()
        took = time.perf_counter() - began
        response.read()
        _expect_success(target, response.status)
        return took * 1000

    def latency(self, target: str) -> float:
        """Milliseconds from sending a request to the last byte of its response."""
        began = time.perf_counter()
        response, _ = self.get(target)
        took = time.perf_counter() - began
        _expect_success(target, response.status)
        return took * 1000


def _expect_success(target: str, status: int) -> None:
    if status >= 400:
        raise BenchError(f"{target}: status {status}")
