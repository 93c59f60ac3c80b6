"""Locks that another program has in a store on PostgreSQL, and requests that wait for them."""

import asyncio
from typing import Any

import psycopg

from testing.subprocesses import PATIENCE

LOCK_REFERENCE = """
    SELECT pg_advisory_xact_lock(
        hashtextextended(%s || ' ' || encode(sha256(convert_to(%s::text, 'UTF8')), 'hex'), 4802)
    )
"""
"""Locks a reference of an owner, as the service does for a request that gives it to an order."""


async def until_waiting(other: "psycopg.Connection[Any]") -> None:
    """Wait until a transaction waits for a lock."""
    async with asyncio.timeout(PATIENCE):
        while other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
