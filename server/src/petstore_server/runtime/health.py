"""All health checks in order. The command line and the operator console show the results."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from petstore_server.domain.errors import DomainError, ServiceUnavailable, StoreUnusable
from petstore_server.operations import health
from petstore_server.operations import health_machine as machine
from petstore_server.operations.health import CheckResult
from petstore_server.runtime.backend import require_servable
from petstore_server.runtime.installation import LocalInstallation, read_counters
from petstore_server.settings import Settings, SettingsError, describe_url


@dataclass
class _Seen:
    """What is learnt on the way: by how many seconds clocks are ahead of this machine's, and what the store says."""

    clock: Callable[[], float]
    ahead: dict[str, float] = field(default_factory=dict)
    last_change: float = 0.0
    store_id: str | None = None


async def examine(installation: LocalInstallation, clock: Callable[[], float], *, in_full: bool) -> list[CheckResult]:
    """Run every check. `clock` gives Unix seconds. If the store cannot be opened, checks of its content are left out.

    `in_full`: read all of the store too, which takes seconds, and would slow down a process that serves requests.
    """
    settings, file, seen = installation.settings, installation.store_file, _Seen(clock)
    results = [CheckResult("settings", "ok", f"All settings are valid; the environment is {settings.environment}.")]
    results += machine.check_deployment(settings)
    holds_store = None if file is None else installation.server_holds_store()
    server = await asyncio.to_thread(lambda: list(machine.check_server(settings, holds_store=holds_store)))
    moved = holds_store is False and server[0].level == "fail"  # to create a store would put an empty one in its place
    store = await _store(installation, seen, in_full=in_full, advise=not moved)
    results += await _redis(settings, seen)
    if file is not None:
        results += [*machine.check_files(file), *machine.check_disk(file)]
    return [*results, health.check_clock(clock(), seen.ahead, seen.last_change), *store, *server]


async def _redis(settings: Settings, seen: _Seen) -> list[CheckResult]:
    try:
        require_servable(settings)
        if settings.redis_url is None:
            return []
        async with read_counters(settings) as counters:
            info = await counters.info()
            seen.ahead["Redis"] = info["server_time_usec"] / 1e6 - seen.clock()
            if seen.store_id is not None:  # else it has no name under which to write
                counters.use_store(seen.store_id)
                await counters.prove()
            return list(health.check_redis(info))
    except SettingsError as error:
        remedy = "Set PETSTORE_REDIS_URL, for example to redis://127.0.0.1:6379/0; no server starts without it."
        if settings.redis_url is not None:
            remedy = "Install the driver, or remove PETSTORE_REDIS_URL; no server starts without the driver."
        return [CheckResult("redis", "fail", str(error), remedy)]
    except ServiceUnavailable as error:
        message = f"Limits cannot be counted at {describe_url(settings.redis_url or '')} ({error.reason})."
        remedy = "Check that Redis runs there and accepts this user; until then each process counts limits on its own."
        return [CheckResult("redis", "fail", message, remedy)]


async def _store(installation: LocalInstallation, seen: _Seen, *, in_full: bool, advise: bool) -> list[CheckResult]:
    file, now = installation.store_file, seen.clock()
    try:
        async with installation.opened_store() as store:
            await store.check()
            seen.store_id, seen.last_change = await store.identity(), await store.audit.last_change()
            results = [CheckResult("store", "ok", "The store opens, has this version's schema, and can be written.")]
            results += [result async for result in health.check_partners(store, now)]
            with suppress(ServiceUnavailable):  # the orders are damaged: the check of integrity reports that
                results += [result async for result in health.check_identifiers(store)]
            results.append(health.check_backups(await store.audit.last_backup(), now, with_tools=file is None))
        if file is None:
            state = await installation.postgres_state()
            seen.ahead["PostgreSQL"] = float(state["now"]) - seen.clock()
            results += health.check_postgres(state)
    except (DomainError, SettingsError, OSError) as error:
        reason = error.explanation if isinstance(error, ServiceUnavailable) else str(error)
        if isinstance(error, StoreUnusable) and not advise:
            reason = error.problem
        return [CheckResult("store", "fail", reason, "Correct that, then check again.")]
    return [*results, await asyncio.to_thread(_integrity, installation, in_full=in_full)]


def _integrity(installation: LocalInstallation, *, in_full: bool) -> CheckResult:
    file = installation.store_file
    if not in_full or file is None or not machine.is_quick_to_read(file):
        return CheckResult("integrity", "ok", "The store was not read in full.", action="check store")
    problems = installation.store_problems()
    if not problems:
        return CheckResult("integrity", "ok", "The store was read in full and is sound.")
    message = f"The store was read in full and is not sound: {problems[0]}"
    return CheckResult("integrity", "fail", message, "Restore the latest sound backup.", "restore")
