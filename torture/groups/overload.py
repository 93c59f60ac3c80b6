"""More than the service can take: what is answered, what is refused, and how the other accounts fare."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

from torture.client import Connection, NoReply
from torture.cluster import Cluster, cluster
from torture.load import Load, Measured, percentile, run
from torture.plan import Check, Plan, Result
from torture.programs import apart
from torture.state import new_key, put_orders

GREEDY, SLOW, PROBES = 500, 50, 4
NICE = 10
"""Of the load: clients on other machines would take no processor time from the server and from the other account."""

ORDERS, LISTED = 100_000, 1_000
FACTOR = 5
"""By which the p99 of another account may grow under a load."""

FLOOR = 10.0
"""Milliseconds below which no growth matters: the machine's own noise."""


def checks(plan: Plan) -> Iterator[Check]:
    for seed in plan.seeds:
        for engine in ("sqlite", "postgres"):
            for kind in ("list", "cancel", "place"):
                yield overloaded(seed, engine, kind, min(plan.seconds, 10.0))


async def send(load: Load) -> Measured:
    """Send a load from a separate process."""
    return await apart(run, load)


async def health(made: Cluster, seconds: float) -> float:
    """The longest time that /livez took, in milliseconds."""
    worst, ends = 0.0, time.monotonic() + seconds
    with Connection(made.servers[0].admin_port, "", 10.0) as connection:
        while time.monotonic() < ends:
            began = time.monotonic()
            try:
                await connection.request("GET", "/livez")
            except NoReply:
                worst = float("inf")
            worst = max(worst, 1000 * (time.monotonic() - began))
            await asyncio.sleep(0.05)
    return worst


async def overloaded(seed: int, engine: str, kind: str, seconds: float) -> Result:
    """One account sends all it can over many connections, some of them slow readers; another one measures."""
    async with AsyncExitStack() as stack:
        made = await cluster(stack, engine, 1, direct=True)
        await put_orders(made.url, range(1, (LISTED if kind == "list" else ORDERS) + 1))
        server, other = made.servers[0], await new_key(made.url, "other")
        probe = Load(server.port, other, kind, PROBES, seconds, pause=0.02, first=1)
        idle = await send(probe)
        before = server.memory()
        greedy = Load(server.port, made.key, kind, GREEDY, seconds + 1, first=20_000, nice=NICE)
        slow = Load(server.port, made.key, "list", SLOW, seconds + 1, slow=True, nice=NICE)
        loads = [asyncio.create_task(send(load)) for load in (greedy, slow)]
        await asyncio.sleep(0.7)
        busy, worst = await asyncio.gather(send(replace(probe, first=5_000)), health(made, seconds))
        load, _ = await asyncio.gather(*loads)
        memory = server.memory() - before
        await asyncio.sleep(1)
        after = await send(replace(probe, first=10_000, seconds=min(seconds, 2)))
    quiet, loaded, later = (percentile(each.served, 0.99) for each in (idle, busy, after))
    refused, answered = percentile(load.refused, 0.99), percentile(load.served, 0.99)
    rates = [len(each) / (seconds + 1) for each in (load.served, load.refused)]
    shown = (
        f"another account p50 {percentile(idle.served, 0.5):.1f} -> {percentile(busy.served, 0.5):.1f}, "
        f"p99 {quiet:.1f} -> {loaded:.1f} -> {later:.1f} ms, {len(busy.refused)} of {len(busy.served)} refused; greedy "
        f"{rates[0]:.0f}/s p99 {answered:.0f} ms, 503 {rates[1]:.0f}/s "
        f"p99 {refused:.0f} ms; health {worst:.0f} ms; +{memory / 1e6:.0f} MB; {dict(load.statuses)}"
    )
    problems = []
    if loaded > max(FACTOR * quiet, FLOOR):
        problems.append(f"p99 of another account {loaded:.1f} ms, {loaded / quiet:.1f} times idle")
    if busy.refused:
        problems.append(f"{len(busy.refused)} requests of another account refused")
    if later > max(2 * quiet, FLOOR):
        problems.append(f"p99 {later:.1f} ms a second after the load")
    if load.without_retry_after + busy.without_retry_after:
        problems.append("503 without Retry-After")
    return Result(f"{kind} on {engine}", seed, shown, problems)
