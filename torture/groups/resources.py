"""Memory and descriptors: under millions of requests with hostile variation, and under a long mixed load."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

from torture.cluster import cluster
from torture.groups.overload import send
from torture.hostile import Attack, run
from torture.load import Load, percentile
from torture.plan import Check, Plan, Result
from torture.programs import Server, apart
from torture.state import new_key, put_orders

GROWTH = 30_000_000
SLOPE = 1_000_000
"""Bytes of memory: those that a hostile run may leave, and those that an hour of mixed load may add."""

ORDERS = 2_000
_FEW = 20
"""Orders for the hostile run, which is about what is sent, not about long lists."""

ROUNDS = 10
_SENDERS = 2
_WARM = 100_000
"""Requests that fill the caches and the tables, whose bounds docs/reference.md lists, before memory is compared."""


def checks(plan: Plan) -> Iterator[Check]:
    for seed in plan.seeds:
        if plan.requests:
            yield hostile(seed, plan.requests)
        if plan.seconds:
            yield mixed(seed, plan.seconds)


async def _attack(server: Server, keys: list[str], requests: int, seed: int) -> Counter[str]:
    """Send requests from several processes; return how often each status came."""
    seeds = range(_SENDERS * seed, _SENDERS * (seed + 1))
    attacks = [Attack(server.port, keys, requests // _SENDERS, each) for each in seeds]
    return sum(await asyncio.gather(*(apart(run, each) for each in attacks)), Counter[str]())


async def hostile(seed: int, requests: int, warm: int = _WARM) -> Result:
    """Memory and descriptors after a run with hostile variation are those of its start."""
    async with AsyncExitStack() as stack:
        made = await cluster(stack, "sqlite", 1, direct=True, PETSTORE_TRUSTED_PROXIES="127.0.0.1")
        await put_orders(made.url, range(1, _FEW + 1))
        keys = [made.key, *[await new_key(made.url, f"other-{number}") for number in range(3)]]
        server = made.servers[0]
        await _attack(server, keys, warm, seed + 1)
        memory, files = server.memory(), server.descriptors()
        began = time.monotonic()
        statuses = await _attack(server, keys, requests, seed)
        seconds = time.monotonic() - began
        await asyncio.sleep(3)
        grown, left = server.memory() - memory, server.descriptors() - files
    shown = f"{requests} requests in {seconds:.0f} s, memory {memory / 1e6:.0f} {grown / 1e6:+.1f} MB"
    problems = [f"memory has grown by {grown / 1e6:.1f} MB"] if grown > GROWTH else []
    problems += [f"{left} descriptors are left open"] if left > 2 else []
    problems += [f"{statuses[status]} of {status}" for status in ("500", "no response") if statuses[status]]
    return Result("hostile variation", seed, f"{shown}, descriptors {left:+d}; {dict(statuses)}", problems)


async def mixed(seed: int, seconds: float) -> Result:
    """Lists, pages, cancels and placed orders for a while: memory, descriptors and p99 stay as they are."""
    async with AsyncExitStack() as stack:
        made = await cluster(stack, "sqlite", 1, direct=True)
        await put_orders(made.url, range(1, ORDERS + 1))
        server = made.servers[0]
        rounds: list[tuple[Any, ...]] = []
        for _ in range(ROUNDS + 1):  # the same orders and keys in each: what grows with the store is not compared
            loads = [
                Load(server.port, made.key, kind, 4, seconds / ROUNDS, pause=0.02, numbers=ORDERS)
                for kind in ("list", "page", "cancel", "place")
            ]
            found = await asyncio.gather(*map(send, loads))
            latencies = [latency for measured in found for latency in measured.served]
            rounds.append((server.memory(), server.descriptors(), percentile(latencies, 0.99), len(latencies)))
    rounds = rounds[1:]  # the first fills the caches
    half = len(rounds) // 2
    early, late = (
        [sum(values) / len(part) for values in zip(*part, strict=True)] for part in (rounds[:half], rounds[half:])
    )
    slope = (late[0] - early[0]) / (seconds / 2) * 3600
    shown = f"{seconds:.0f} s, {sum(each[3] for each in rounds)} requests, p99 {early[2]:.1f} then {late[2]:.1f} ms"
    shown += f", {slope / 1e6:+.1f} MB an hour, descriptors {rounds[0][1]} then {rounds[-1][1]}"
    problems = [f"memory grows by {slope / 1e6:.1f} MB an hour"] if slope > SLOPE else []
    problems += ["descriptors are left open"] if rounds[-1][1] > rounds[0][1] + 2 else []
    problems += [f"p99 rises to {late[2]:.1f} ms"] if late[2] > 2 * max(early[2], 5) else []
    return Result("mixed load", seed, shown, problems)
