"""Loss of power on SQLite, flushes that fail, and PostgreSQL killed with all its processes."""

from collections.abc import Coroutine, Iterator
from typing import Any

from torture import crashes, power, power_commands
from torture.plan import Check, Plan, Result


def checks(plan: Plan) -> Iterator[Check]:
    """Half of the images are of a server under load."""
    few = max(1, plan.images // 4)
    for seed in plan.seeds:
        yield _shown("power lost by a server", seed, power.served(seed, plan.images))
        yield _shown("power lost by two servers", seed, power.served(seed, few, servers=2))
        yield _shown("flushes that fail", seed, power.failing_flushes(seed, few))
        yield _shown("power lost during an import", seed, power_commands.imported(seed, few))
        yield _shown("power lost during a restore", seed, power_commands.restored(seed, few))
        yield _shown("power lost during a backup", seed, power_commands.backed_up(seed, few))
        yield _shown("power lost during a migration", seed, power_commands.migrated(seed, few))
        yield _without_flushes(seed, few)
        if plan.kills:
            yield _shown("PostgreSQL killed", seed, crashes.killed(seed, plan.kills))
            yield _shown("PostgreSQL or db copy killed", seed, crashes.copied(seed, max(1, plan.kills // 10)))


async def _shown(check: str, seed: int, running: Coroutine[Any, Any, power.Outcome]) -> Result:
    found = await running
    shown = f"{found.images} images or kills, {found.acknowledged} acknowledged"
    return Result(check, seed, f"{shown}, {found.faults} failed flushes" if found.faults else shown, found.problems)


async def _without_flushes(seed: int, images: int) -> Result:
    """A server that flushes nothing must be found out: this checks the check."""
    found = await power.served(seed, images, flush=False)
    problems = [] if found.problems else ["a server without flushes loses nothing: the check is blind"]
    return Result("a server without flushes", seed, f"{found.images} images, losses found", problems)
