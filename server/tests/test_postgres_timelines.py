"""Which server of PostgreSQL is the right one, by what servers say of their timeline and of the store's clock (D19)."""

from typing import cast

import pytest
from psycopg.errors import LockNotAvailable

from petstore_server.engines.postgres import timelines as timelines_module
from petstore_server.engines.postgres.connections import Driver
from petstore_server.engines.postgres.faults import OldPrimary
from petstore_server.engines.postgres.timelines import Timelines
from petstore_server.store.statements import Row


class Server:
    """A primary with a timeline and, each time that it is asked, a clock; without a timeline a replica."""

    def __init__(self, timeline: int | None, *clocks: int) -> None:
        self.ended: tuple[str, ...] = ()
        """The histories in whose place a new one was begun."""
        self._timeline = timeline
        self._clocks = [*clocks]
        self.locked = False

    async def rows(self, sql: str, parameters: tuple[str, ...] = ()) -> list[Row]:
        self.ended += parameters
        if "pg_walfile_name" in sql:
            return [] if self._timeline is None else [("store", f"{self._timeline:08X}")]
        if self.locked:
            raise LockNotAvailable
        return [] if parameters else [("epoch", self._clocks.pop(0))]


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines_module, "briefly", Server.rows)


class Shared:
    """What processes have noted where all see it."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, int]] = []

    async def __call__(self, name: str, number: int) -> int:
        self.noted.append((name, number))
        return max(each for noted, each in self.noted if noted == name)


async def verify(timelines: Timelines, server: Server) -> None:
    await timelines.verify(cast(Driver, server))


async def test_a_primary_with_an_older_timeline_than_one_that_was_seen_is_refused() -> None:
    share = Shared()
    for timelines in (Timelines(), Timelines(share)):
        for server in (Server(None), Server(16, 1), Server(17, 1), Server(17, 1), Server(None)):
            await verify(timelines, server)
        assert 0 == timelines.refused
        with pytest.raises(OldPrimary, match="timeline 16, after 17 was seen"):
            await verify(timelines, Server(16))
        assert 1 == timelines.refused
    with pytest.raises(OldPrimary):  # by another process, which has seen no other
        await verify(Timelines(share), Server(16))


async def test_a_time_that_is_shown_is_noted_once() -> None:
    share = Shared()
    timelines = Timelines(share)
    await verify(timelines, Server(1, 50))
    share.noted.clear()
    for epoch, at in (("epoch", 50), ("epoch", 49), ("epoch", 51), ("epoch", 51), ("new", 40), ("new", 40)):
        await timelines.witness(epoch, at)
        await Timelines().witness(epoch, at)  # without others to share it with
    assert [("store:clock:epoch", 51), ("store:clock:new", 40)] == share.noted
