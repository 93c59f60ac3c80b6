"""Eight processes create and open one store together, again and again; each of them must succeed."""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from threading import BrokenBarrierError

from petstore_server.domain.errors import DomainError
from petstore_server.engines import sqlite
from petstore_server.runtime.opening import opened_store
from torture.plan import Check, Plan, Result

PROCESSES = 8
_CREATION = 0.01  # seconds that creating a store takes: the processes meet it in each of its steps
_PATIENCE = 120.0  # seconds for one round


def checks(plan: Plan) -> Iterator[Check]:
    if plan.rounds:
        for seed in plan.seeds:
            yield creation(seed, plan.rounds)


async def creation(seed: int, rounds: int) -> Result:
    """In each round one process creates the store, and all of them open it, read it and write to it."""
    context = multiprocessing.get_context("spawn")
    begin, reports = context.Barrier(PROCESSES), context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="petstore-torture-") as folder:
        arguments = Path(folder), rounds, begin, reports
        processes = [context.Process(target=_work, args=(*arguments, number, seed)) for number in range(PROCESSES)]
        try:
            for process in processes:
                process.start()
            outcomes = [await asyncio.to_thread(reports.get) for _ in range(PROCESSES)]
        finally:
            for process in processes:
                await asyncio.to_thread(process.join)
    problems = [problem for _, refused in outcomes for problem in refused]
    created = sum(count for count, _ in outcomes)
    if created != rounds:
        problems.append(f"{created} stores were created in {rounds} rounds")
    return Result("creation", seed, f"{rounds} rounds of {PROCESSES} processes, {created} stores created", problems)


def _work(
    folder: Path, rounds: int, begin: Barrier, reports: "SimpleQueue[tuple[int, list[str]]]", number: int, seed: int
) -> None:
    """Take part in every round; report how many stores this process created, and what was refused."""
    random = Random(f"{seed} {number}")
    created: list[str] = []
    refused: list[str] = []
    try:
        for turn in range(rounds):
            path = folder / f"{turn}.db"
            with suppress(BrokenBarrierError):
                begin.wait(_PATIENCE)
            time.sleep(random.uniform(0, _CREATION))
            try:
                sqlite.migrate(path, created.append)
                asyncio.run(_use(path))
            except (DomainError, OSError) as error:
                refused.append(f"round {turn}, process {number}: {error}")
            with suppress(BrokenBarrierError):
                begin.wait(_PATIENCE)
            if number == 0:
                for file in folder.glob(f"{turn}.db*"):
                    file.unlink()
    finally:
        reports.put((len(created), refused))


async def _use(path: Path) -> None:
    async with opened_store(f"sqlite:///{path}") as store:
        await store.access_version()
        await store.check()
