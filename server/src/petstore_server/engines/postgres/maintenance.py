"""Check of the whole store. Backups are made with PostgreSQL's own tools (pg_dump)."""

from petstore_server.engines.postgres.opening import SCHEMA, connected, place, schema_version
from petstore_server.engines.postgres.timelines import Share
from petstore_server.engines.schema import no_store
from petstore_server.store.records import CHECKED, MOST_PROBLEMS, order_problem

_PAGE = 5_000
_INDEXES = """
    SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
    WHERE relnamespace = 'petstore'::regnamespace AND NOT (indisvalid AND indisready)
"""
_DURABILITY = """
    SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
"""


async def durability_settings(url: str, share: Share | None = None) -> dict[str, str]:
    """Return the settings that decide whether an acknowledged change is durable, by name. Raises StoreUnusable."""
    async with connected(url, share) as driver:
        return dict(await (await driver.execute(_DURABILITY)).fetchall())


async def check(url: str, share: Share | None = None) -> list[str]:
    """Return what is wrong with the store, in plain words; nothing if it is sound. Raises StoreUnusable."""
    problems: list[str] = []
    async with connected(url, share) as driver:
        version = await schema_version(driver, url)
        where = f"in {place(url)}"
        if version == 0:
            raise no_store(where)
        if outdated := SCHEMA.outdated(version, where):
            return [outdated]
        for (name,) in await (await driver.execute(_INDEXES)).fetchall():
            problems.append(f"The index {name} is not valid; REINDEX it.")
        async with driver.transaction(), driver.cursor("checked") as orders:
            await orders.execute(f"{CHECKED} ORDER BY id")
            while len(problems) < MOST_PROBLEMS and (page := await orders.fetchmany(_PAGE)):
                problems += [problem for row in page if (problem := order_problem(row)) is not None]
    return problems[:MOST_PROBLEMS]
