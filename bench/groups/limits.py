"""Limit decisions that one core of Redis carries, against redis-benchmark calling the same script.

The service runs on SQLite with limits in Redis. What it sends for a single request is read from Redis's MONITOR, and
redis-benchmark then repeats that call with random accounts, so the benchmark needs nothing of the service's inside.
"""

import ast
import hashlib
import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench import access
from bench.load import CONNECTIONS
from bench.machine import BenchError, cpu_seconds, pinned
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress, run
from bench.results import PRODUCT, Goal, Row
from bench.setup import Running, Setup
from testing.redis_engine import RedisEngine

REFERENCE = "redis-benchmark"
ACCOUNTS = 1_000


class Call(NamedTuple):
    """One call of a script, as the service sent it."""

    script: bytes
    keys: list[bytes]
    arguments: list[bytes]


def measure(plan: Plan) -> list[Row]:
    """Measure decisions per second of Redis's processor time, and the memory of an account there."""
    progress("limit decisions in Redis")
    with Setup(plan) as setup:
        engine, store = setup.redis(plan.cores.server), setup.store(10)
        keys = setup.folder() / "keys"
        keys.write_text("\n".join(access.add_keys(store, plan.size(10_000, 100))))
        monitor = setup.enter_context(socket.create_connection(("127.0.0.1", engine.port)))
        monitor.sendall(b"MONITOR\r\n")
        server = setup.petstore(store, PETSTORE_REDIS_URL=engine.url)
        with server.connection() as connection:
            for _ in range(3):
                connection.latency(LIST)
        call = _recorded(monitor)
        monitor.close()

        def ours() -> float:
            reading = server.wrk(LIST, watch={"Redis": engine.process.pid})
            return 1e6 / max(reading.costs["Redis"], 0.1)

        memory = _bytes_per_account(plan, engine, server, keys)
        each = interleaved(plan.rounds, {PRODUCT: ours, REFERENCE: lambda: _redis_benchmark(plan, engine, call)})
    title = "Limit decisions per second of Redis's processor"
    return [
        Row("limits", title, "decisions/s", each, REFERENCE, Goal(1.0)),
        Row("limits-memory", "Memory of Redis per account with open windows", "bytes", {PRODUCT: [memory]}),
    ]


def _bytes_per_account(plan: Plan, engine: RedisEngine, server: Running, keys: Path) -> float:
    """What Redis keeps for an account, from requests with the keys of many accounts in turn."""
    before = engine.client.info("memory")["used_memory"]
    reading = server.wrk(LIST, kind=("keys", keys, 1))
    accounts = min(len(keys.read_text().splitlines()), reading.rate * plan.seconds)
    return float(engine.client.info("memory")["used_memory"] - before) / accounts


def _recorded(monitor: socket.socket) -> Call:
    """The last call of a script among what Redis has reported of its commands."""
    scripts: dict[bytes, bytes] = {}
    call = None
    for line in _reported(monitor):
        words = [_unescaped(word) for word in re.findall(rb'"((?:[^"\\]|\\.)*)"', line)]
        command = words[0].upper() if words else b""
        if command == b"SCRIPT" and words[1].upper() == b"LOAD":
            scripts[hashlib.sha1(words[2]).hexdigest().encode()] = words[2]
        elif command in (b"EVAL", b"EVALSHA"):
            number = int(words[2])
            script = scripts.get(words[1].lower(), b"") if command == b"EVALSHA" else words[1]
            call = Call(script, words[3 : 3 + number], words[3 + number :])
    if call is None or not call.script:
        raise BenchError("The service sent Redis no script for a request; this benchmark has to follow it.")
    return call


def _reported(monitor: socket.socket) -> list[bytes]:
    """The lines that Redis has sent so far; commands within scripts are left out."""
    received, ends = b"", time.monotonic() + 1
    while time.monotonic() < ends:
        monitor.settimeout(max(0.01, ends - time.monotonic()))
        with suppress(TimeoutError):
            received += monitor.recv(1 << 16)
    return [line for line in received.split(b"\r\n") if b"[0 lua]" not in line]


def _unescaped(word: bytes) -> bytes:
    r"""The bytes of a word in MONITOR's quoting, which is that of Python: \n, \\, \", \xNN and others."""
    found: bytes = ast.literal_eval(f'b"{word.decode("ascii")}"')
    return found


def _redis_benchmark(plan: Plan, engine: RedisEngine, call: Call) -> float:
    """Calls of the script per second of Redis's processor. A command line could not carry its arguments."""
    texts = ",".join('"' + "".join(f"\\{byte:03}" for byte in argument) + '"' for argument in call.arguments)
    digest = str(engine.client.script_load(b"local ARGV = {" + texts.encode() + b"} " + call.script))
    keys = [re.sub(r"\{\d+\}", "{__rand_int__}", key.decode()) for key in call.keys]
    number = plan.size(50_000, 5_000) * plan.seconds
    command = ["redis-benchmark", "-p", str(engine.port), "-c", str(CONNECTIONS), "-n", str(number), "--csv"]
    options = ["-r", str(ACCOUNTS), "EVALSHA", digest, str(len(keys)), *keys]
    used = cpu_seconds(engine.process.pid)
    printed = run(pinned(plan.cores.load, [*command, *options]))
    if not re.search(r'","([\d.]+)"', printed):
        raise BenchError(f"redis-benchmark: {printed}")
    return number / (cpu_seconds(engine.process.pid) - used)
