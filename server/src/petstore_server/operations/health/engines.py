"""Checks of Redis and PostgreSQL: whether they keep what the service relies on."""

from collections.abc import Iterator, Mapping
from typing import Any

from petstore_server.operations.health import CheckResult

_KEEPING_POLICY = "noeviction"
_NEARLY_FULL = 0.8


def check_redis(info: Mapping[str, Any]) -> Iterator[CheckResult]:
    """What the fields of Redis's INFO, and its setting `appendfsync`, mean for limits (D12)."""
    concerns = list(_redis_concerns(info))
    yield from concerns
    if not concerns:
        version = info.get("valkey_version") or info.get("redis_version")
        message = f"Redis {version} counts limits, keeps the counts across a restart, and evicts none."
        yield CheckResult("redis", "ok", message)


def check_postgres(settings: Mapping[str, str]) -> Iterator[CheckResult]:
    """What PostgreSQL's settings mean for durability: a cancel is acknowledged only after it is durable (D5)."""
    risky = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if settings.get(name) == "off"]
    if not risky:
        yield CheckResult("postgresql", "ok", "PostgreSQL acknowledges a change only after it is durable.")
    for name in risky:
        message = f"PostgreSQL has {name} = off: a crash can lose changes that were acknowledged."
        remedy = f"Set {name} = on for the server, the database and the role of PETSTORE_DATABASE_URL."
        yield CheckResult("postgresql", "warn", message, remedy)


def _redis_concerns(info: Mapping[str, Any]) -> Iterator[CheckResult]:
    if not info.get("aof_enabled"):
        remedy = "Set `appendonly yes`; with `appendfsync everysec` a crash loses at most one second of counting."
        message = "Redis has no append-only file: a restart loses the counts of the day."
        yield CheckResult("redis", "warn", message, remedy)
    elif info.get("appendfsync") == "no":
        message = "Redis leaves it to the system when its append-only file is written: a crash can lose many counts."
        yield CheckResult("redis", "warn", message, "Set `appendfsync everysec`.")
    policy = info.get("maxmemory_policy", _KEEPING_POLICY)
    if policy != _KEEPING_POLICY:
        message = f"Redis evicts keys when its memory is full ({policy}): accounts would get new quota."
        remedy = f"Set `maxmemory-policy {_KEEPING_POLICY}`, and give it enough memory."
        yield CheckResult("redis", "warn", message, remedy)
    used, room = info.get("used_memory", 0), info.get("maxmemory", 0)
    if room and used > _NEARLY_FULL * room:
        message = f"Redis uses {used >> 20} of its {room >> 20} MiB."
        yield CheckResult("redis", "warn", message, "Raise `maxmemory`: a full Redis stops counting.")
    if info.get("role") == "slave":
        message = "This Redis is a replica and cannot count."
        yield CheckResult("redis", "warn", message, "Point PETSTORE_REDIS_URL to the primary.")
