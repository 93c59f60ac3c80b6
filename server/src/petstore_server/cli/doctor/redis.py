"""The part of `petstore doctor` that looks at Redis: whether it counts for us, and whether it keeps what it counted."""

import asyncio
from collections.abc import Iterator
from typing import Any

from petstore_server.cli.doctor.results import CheckResult
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.runtime import backend
from petstore_server.settings import Settings, SettingsError

_KEEPING_POLICY = "noeviction"
_NEARLY_FULL = 0.8


def examine_redis(settings: Settings) -> Iterator[CheckResult]:
    """Connect as a server would, count once, and read what Redis says of itself."""
    try:
        backend.require_servable(settings)
        if settings.redis_url is None:
            return
        info = asyncio.run(backend.redis_info(settings))
    except SettingsError as error:
        yield CheckResult("redis", "fail", str(error), "Servers do not start like this; set that right.")
    except ServiceUnavailable as error:
        message = f"PETSTORE_REDIS_URL is {settings.redis_url}, and counting there fails: {error.reason}."
        remedy = "See that Redis runs there and lets us in; until then each process counts limits by itself."
        yield CheckResult("redis", "fail", message, remedy)
    else:
        yield from judge_redis(info)


def judge_redis(info: dict[str, Any]) -> Iterator[CheckResult]:
    """What the fields of Redis's INFO mean for limits."""
    concerns = list(_concerns(info))
    yield from concerns
    if not concerns:
        version = info.get("valkey_version") or info.get("redis_version")
        yield CheckResult("redis", "ok", f"Redis {version} counts, keeps its counts across a restart and evicts none.")


def _concerns(info: dict[str, Any]) -> Iterator[CheckResult]:
    if not info.get("aof_enabled"):
        remedy = "Set `appendonly yes`; with `appendfsync everysec` at most a second of counting is lost."
        yield CheckResult("redis", "warn", "Redis has no append-only file: a restart forgets the day's counts.", remedy)
    policy = info.get("maxmemory_policy", _KEEPING_POLICY)
    if policy != _KEEPING_POLICY:
        message = f"Redis evicts keys when its memory is full ({policy}): accounts would be counted anew."
        yield CheckResult(
            "redis", "warn", message, f"Set `maxmemory-policy {_KEEPING_POLICY}`, and give it enough memory."
        )
    used, room = info.get("used_memory", 0), info.get("maxmemory", 0)
    if room and used > _NEARLY_FULL * room:
        message = f"Redis uses {used >> 20} of its {room >> 20} MiB."
        yield CheckResult("redis", "warn", message, "Raise `maxmemory`: a full Redis counts no more.")
    if info.get("role") == "slave":
        message = "This Redis is a replica, and counts nothing itself."
        yield CheckResult("redis", "warn", message, "Point PETSTORE_REDIS_URL to the primary.")
