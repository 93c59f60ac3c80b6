"""Placing orders: equal bodies, replays, identifiers, idempotency keys, and many placements at the same time."""

import asyncio
import re
import shlex
from pathlib import Path

from petstore_server.domain.errors import IdempotencyKeyReused, NoIdentifierLeft
from petstore_server.domain.orders import CANCEL, MAX_ASSIGNED_ID, Order, Status, ship_on
from petstore_server.domain.placements import KEY_LIFETIME, Placed, Placement
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.runtime.opening import sqlite_path
from petstore_server.store import Store
from testing.cli import CommandLine, Done
from testing.documents import ROOT
from testing.stores import BY, SqlitePlaces, Stores, add_owner, all_orders, log


def placement(account_id: int, key: str = "one", quantity: int = 1) -> Placement:
    return Placement(account_id, key, 7, quantity, "2026-11-01T10:00:00Z")


async def test_no_reference_can_be_chosen_so_that_its_lock_is_that_of_another_owner(postgres_store: Store) -> None:
    """Of these two, PostgreSQL's own hash is the same; such a pair takes a second to find."""
    victim, chosen = (2, "PO-2026-000777"), (1, r'31BlZ*Wp\r1=dUch"=atz`!')
    engine, find_keys = postgres_store.engine, postgres_store.engine.dialect.find_keys
    sql = "SELECT count(DISTINCT hashtextextended(text, 4802)) FROM unnest(%s::text[]) AS pair (text)"
    assert [(1,)] == await engine.query(sql, ([f"{owner} {text}" for owner, text in (victim, chosen)],))
    async with engine.snapshot() as read:
        await read(lambda: find_keys([], [chosen], 0.0))
        found = await engine.transaction(lambda: find_keys([], [victim, chosen], 0.0))
    assert {chosen} == found.busy_references


def test_a_reference_is_erased_as_the_page_says_and_stays_where_it_says(each_backend: Stores) -> None:
    """The commands of docs/data-and-privacy.md, on orders that are pending, shipped and cancelled."""
    cancelled, shipped, pending = 1, 2, 3

    async def prepare() -> None:
        async with each_backend.opened() as store:
            account_id = await add_owner(store)
            for number in (cancelled, shipped, pending):
                await store.orders.place(Placement(account_id, f"key {number}", 7, number, None, f"Roe {number}"), BY)
            await store.orders.change(cancelled, CANCEL, BY)
            await store.orders.change(shipped, ship_on("2026-11-20T08:00:00Z"), BY)

    def run(line: str) -> Done:
        program, *arguments = shlex.split(line)
        assert "petstore" == program
        return CommandLine(Path("unused"), make=False)(*arguments, PETSTORE_DATABASE_URL=each_backend.url)

    asyncio.run(prepare())
    page = (ROOT / "docs/data-and-privacy.md").read_text()
    [(erase, show)] = re.findall(r"<!-- erase: \w+ -->\n```sh\n(.*)\n(.*)\n```", page)
    for number in (cancelled, shipped, pending):
        assert f'"reference":"Roe {number}"' in run(f"petstore orders show {number} --json").out
        assert 0 == run(erase.replace("1001", str(number))).code
        assert "Roe" not in run(f"{show.replace('1001', str(number))} --json").out
    assert "Roe" not in run("petstore orders export -").out
    assert 0 == run("petstore db check").code
    for number in (cancelled, shipped, pending):  # the placement, and the correction
        assert 2 == run("petstore audit --full --json").out.count(f"Roe {number}")


async def test_requests_that_share_a_commit_each_get_their_own_outcome(store: Store) -> None:
    account_id = await add_owner(store)
    first = await store.orders.place(placement(account_id, "used"), BY)
    outcomes = await asyncio.gather(
        store.orders.place(placement(account_id, "new"), BY),
        store.orders.place(placement(account_id, "used"), BY),
        store.orders.place(placement(account_id, "used", quantity=2), BY),
        store.orders.place(placement(account_id, "new"), BY),
        store.orders.place(placement(account_id, "new", quantity=2), BY),
        store.orders.place(placement(account_id, "other"), BY),
        return_exceptions=True,
    )
    new, replayed, reused, repeated, changed, other = outcomes
    assert isinstance(new, Placed)
    assert isinstance(other, Placed)
    assert (2, 3, False) == (new.order_id, other.order_id, new.replayed or other.replayed)
    assert first._replace(replayed=True) == replayed
    assert new._replace(replayed=True) == repeated
    assert [IdempotencyKeyReused] * 2 == [type(reused), type(changed)]
    assert [1, 2, 3] == [order.id for order in await all_orders(store)]
    placements = [entry.subject for entry in await log(store) if entry.action == "order.place"]
    assert ["order:1", "order:2", "order:3"] == placements


async def test_requests_that_share_a_commit_are_refused_together_where_identifiers_do_not_suffice(store: Store) -> None:
    account_id = await add_owner(store)
    await store.orders.import_batch([Order(MAX_ASSIGNED_ID - 2)], "import:1", BY)
    outcomes = await asyncio.gather(
        *(store.orders.place(placement(account_id, str(key)), BY) for key in range(20)), return_exceptions=True
    )
    placed = [outcome.order_id for outcome in outcomes if isinstance(outcome, Placed)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, NoIdentifierLeft)]
    assert set(placed) <= {MAX_ASSIGNED_ID - 1, MAX_ASSIGNED_ID}
    assert 20 - len(set(placed)) == len(refused)
    stored = [order.id for order in await all_orders(store)]
    assert [MAX_ASSIGNED_ID - 2, *sorted(placed)] == stored


async def test_no_new_order_gets_an_identifier_that_a_restore_took_back(tmp_path: Path) -> None:
    places = SqlitePlaces(tmp_path)
    stores = Stores(places)
    async with stores.opened() as store:
        account_id = await add_owner(store)
        backup(sqlite_path(stores.url), tmp_path / "backup")
        placed = await store.orders.place(placement(account_id, "one"), BY)
        await store.orders.import_batch([Order(40)], "import-1", BY)
        restore(sqlite_path(stores.url), tmp_path / "backup", BY)
        again = await store.orders.place(placement(account_id, "one"), BY)
        assert (1, 41, False) == (placed.order_id, again.order_id, again.replayed)
        await store.orders.import_batch([Order(60), Order(MAX_ASSIGNED_ID)], "import-2", BY)
        restore(sqlite_path(stores.url), tmp_path / "backup", BY)
        assert 61 == (await store.orders.place(placement(account_id, "two"), BY)).order_id


async def test_old_keys_are_forgotten_as_many_as_asked_for_and_do_not_count_after_a_day(store: Store) -> None:
    account_id = await add_owner(store)

    async def place(key: str, seconds: float = 0) -> tuple[int, bool]:
        placed = await store.orders.place(placement(account_id, key), BY._replace(at=BY.at + seconds))
        return placed.order_id, placed.replayed

    names = ("one", "two", "three")
    assert [(1, False), (2, False), (3, False)] == [await place(name) for name in names]
    await store.orders.forget(BY.at - 1, 10)
    assert [(1, True), (2, True), (3, True)] == [await place(name) for name in names]
    await store.orders.forget(BY.at, 2)
    assert [4, 5] == sorted(order_id for order_id, replayed in [await place(name) for name in names] if not replayed)
    assert (6, False) == await place("one", KEY_LIFETIME + 1)
    assert (6, True) == await place("one", KEY_LIFETIME + 2)
    assert Status.PENDING == (await store.search.find(1)).status
