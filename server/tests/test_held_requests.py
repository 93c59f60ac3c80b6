"""What held requests cost a server, and that one change answers all of them (D20)."""

import asyncio
import random
import re
from collections.abc import Iterator
from pathlib import Path

from petstore_server.api.v2.changes import MAX_HELD_FOR_ACCOUNT, MAX_HELD_FOR_KEY
from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, digest, new_key, new_key_id
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.store import Store
from testing.process import Server, serving
from testing.stores import BY, opened
from testing.subprocesses import PATIENCE, within
from testing.wire import head, read_response

HELD = 400
TOGETHER = 25
"""Requests that are sent at the same time: many are of one account."""
MAX_BYTES = 2 * 4096
"""Memory that a held request takes beyond its connection: 4 KB of 1,000 on Python 3.11, and up to 6 KB of 400 on 3.13.

How the allocator divides its pages differs from version to version, and from run to run.
"""


async def keys(store: Store) -> Iterator[str]:
    """A key for each request that is held, of accounts without limits."""
    source = random.Random(1)
    made = [new_key(Environment.PRODUCTION, source.randrange) for _ in range(HELD // MAX_HELD_FOR_KEY)]
    for number, key in enumerate(made):
        name = f"acme {number * MAX_HELD_FOR_KEY // MAX_HELD_FOR_ACCOUNT}"
        if number * MAX_HELD_FOR_KEY % MAX_HELD_FOR_ACCOUNT == 0:
            await store.accounts.create(name, Plan.ENTERPRISE, Limits(10**6, 10**6), BY)
        key_id = new_key_id(source.randrange)
        entry = ApiKey(key_id, name, digest(key), Environment.PRODUCTION, DEFAULT_SCOPES, "", 0.0, None)
        await store.keys.create(entry, BY)
    return (key for key in made for _ in range(MAX_HELD_FOR_KEY))


class Follower:
    """A connection whose client has read all changes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        self._reader, self._writer, self._key = reader, writer, key

    def ask(self, query: str = "") -> None:
        self._writer.write(head("GET", f"/v2/store/changes?limit=100{query}", key=self._key))

    async def page(self) -> bytes:
        """The next response."""
        response = await read_response(self._reader)
        assert 200 == response.status
        return response.body

    def close(self) -> None:
        self._writer.close()


def held(server: Server, number: int) -> None:
    """Wait until the server holds so many requests."""
    within(PATIENCE, lambda: server.metrics()["petstore_held_requests"] == number)


def memory(server: Server) -> int:
    """Bytes that belong to a process only."""
    rows = Path(f"/proc/{server.process.pid}/smaps_rollup").read_text()
    return 1024 * sum(int(text) for text in re.findall(r"^Private_\w+: +(\d+)", rows, re.MULTILINE))


async def test_held_requests_take_little_memory_and_one_change_answers_all(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
        with serving(tmp_path / "store.db") as server:
            followers = []
            for key in await keys(store):
                followers.append(Follower(*await asyncio.open_connection("127.0.0.1", server.port), key))
                followers[-1].ask()
                token = re.findall(rb'"next":"([^"]+)"', await followers[-1].page())[0].decode()
            held(server, 0)
            before = memory(server)
            for number, follower in enumerate(followers):
                if number % TOGETHER == 0:
                    held(server, number)
                follower.ask(f"&wait=30&after={token}")
            held(server, HELD)
            took = memory(server) - before
            await store.orders.change(1, CANCEL, BY)
            bodies = await asyncio.gather(*(follower.page() for follower in followers))
            for follower in followers:
                follower.close()
    assert {True} == {b'"status":"cancelled"' in body for body in bodies}
    assert took <= HELD * MAX_BYTES
