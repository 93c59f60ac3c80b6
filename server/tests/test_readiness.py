"""Readiness follows what partners get, and once damage was seen no change is accepted (D19)."""

import json
import re
from pathlib import Path
from unittest.mock import patch

import httpx2
import psycopg
import pytest

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.engines.postgres.faults import DAMAGE
from petstore_server.engines.postgres.pool import Pool
from petstore_server.store import Store
from petstore_server.store.damage import Damage
from petstore_server.store.statements import Query
from testing.cli import CommandLine
from testing.damage import add_amcheck, damage_table
from testing.deployment import Deployment
from testing.engines import running_engine
from testing.process import UNLIMITED, Server, new_key, petstore, put_orders, serving, serving_as
from testing.redis_engine import shared_redis, wait_for_redis
from testing.stores import BY, Stores, new_store_database, reason
from testing.subprocesses import PATIENCE, within

REMEDY = "no change is accepted until a backup is restored and the servers are started again"


def readiness(admin: str) -> tuple[int, str]:
    response = httpx2.get(f"{admin}/readyz", timeout=PATIENCE)
    return response.status_code, response.json().get("reason", "")


def test_no_cancel_is_acknowledged_once_damage_was_seen(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    put_orders(store, 8_000, ',"quantity":2')
    key, _ = new_key(store, plan=UNLIMITED)
    assert 0 == petstore(store, "db", "backup", str(tmp_path / "backup.db")).returncode
    with serving(store) as server, server.client(key) as client:
        assert 204 == client.delete("/v1/store/orders/1").status_code
        size = store.stat().st_size
        with store.open("r+b") as file:
            file.seek(size // 3)
            file.write(b"\xff" * (size // 3))
        seen = 0
        for number in range(2, 8_000, 80):
            status = client.delete(f"/v1/store/orders/{number}").status_code
            seen += status == 503
            assert not (seen and status == 204)
        assert seen > 0
        status, why = readiness(server.admin)
        assert (503, True) == (status, f"its file is damaged; {REMEDY}" in why)
        assert 0.0 == server.metrics()["petstore_ready"]
        refused = petstore(store, "orders", "cancel", "8000")
        assert (1, True) == (refused.returncode, REMEDY in refused.stderr)
    assert 0 == petstore(store, "db", "restore", str(tmp_path / "backup.db"), "--yes").returncode
    assert 0 == petstore(store, "orders", "cancel", "8000").returncode


def logged(server: Server) -> list[tuple[str, str, str]]:
    """The changes of readiness in the log of a server, with their levels and reasons."""
    events = map(json.loads, server.log.read_text().splitlines())
    return [(each["event"], each["level"], each["reason"]) for each in events if "ready" in each["event"]]


def test_a_folder_that_is_gone_is_why_the_service_is_not_ready_and_the_log_says_when_it_is_again(
    tmp_path: Path,
) -> None:
    store, moved = tmp_path / "folder" / "store.db", tmp_path / "moved"
    store.parent.mkdir()
    put_orders(store, 1)
    with serving(store) as server:
        assert (200, "") == readiness(server.admin)
        store.parent.rename(moved)
        for _ in range(2):
            status, why = readiness(server.admin)
            assert (503, True) == (status, "No such file or directory" in why)
        assert 0.0 == server.metrics()["petstore_ready"]
        moved.rename(store.parent)
        within(PATIENCE, lambda: readiness(server.admin)[0] == 200)
        within(PATIENCE, lambda: [("not ready", "error", why), ("ready again", "info", why)] == logged(server))
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("command", [["db", "check"], ["doctor"]])
def test_damage_that_a_check_finds_stops_changes(cli: CommandLine, command: list[str]) -> None:
    cli.must("orders", "import", "-", stdin='{"id":1}\n{"id":2}\n{"id":3}\n')
    damage = "UPDATE orders SET complete = 7, status = 'lost' WHERE id = 3"
    cli.execute(f"PRAGMA ignore_check_constraints = ON; {damage}")
    cli.must("orders", "cancel", "1")
    assert 1 == cli(*command).code
    cli("orders", "cancel", "2").fails(1, f"the file is damaged; {REMEDY}")


async def test_damage_that_one_process_has_seen_stops_changes_in_all(each_backend: Stores) -> None:
    opened = each_backend.opened
    async with opened() as one, opened() as two, opened() as importing:
        await one.orders.import_batch([Order(1)], "import:1", BY)
        two.engine.damage.seen(ServiceUnavailable("its file is damaged"))
        await two.engine.damage.close()
        assert REMEDY in (two.engine.fault() or "")
        await one.access_version()  # as a server does several times a second
        for store in (one, two):
            assert f"its file is damaged; {REMEDY}" == await reason(store.orders.change(1, CANCEL, BY))
        assert REMEDY in await reason(importing.orders.import_batch([Order(2)], "import:2", BY)), "for minutes perhaps"
    async with each_backend.opened() as store:
        await store.access_version()
        with pytest.raises(ServiceUnavailable, match="temporarily unavailable"):
            await store.orders.import_batch([Order(2)], "import:2", BY)
        assert [Order(1)] == await store.orders.find_many([1, 2])
        await store.engine.damage.save(None)
    async with each_backend.opened() as store:
        assert None is store.engine.fault()
        await store.orders.change(1, CANCEL, BY)


def test_the_console_of_workers_takes_no_change_once_another_process_has_seen_damage(
    tmp_path: Path, scaled_out: dict[str, str]
) -> None:
    deployment = Deployment(tmp_path / "store.db", scaled_out)
    put_orders(deployment, 1_000)
    with (
        serving_as(deployment, ["--workers", "2"], {}, wait_for_redis) as server,
        httpx2.Client(base_url=f"{server.admin}/console", follow_redirects=True, timeout=PATIENCE) as browser,
    ):
        browser.get(petstore(deployment, "console", "--url", server.admin).stdout.strip())
        token = dict(re.findall(r'name="(form_token)" value="([^"]+)"', browser.get("/orders/1").text))

        def ship(number: int) -> int:
            fields = {**token, "order": str(number), "back": f"/{number}"}
            return browser.post("/orders/ship", data=fields).status_code

        assert 200 == ship(1)
        with psycopg.connect(scaled_out["PETSTORE_DATABASE_URL"]) as database:
            database.execute(Damage.SAVE.encode(), ("seen",))
        numbers = iter(range(2, 1_000))
        within(PATIENCE, lambda: 503 == ship(next(numbers)))
        assert 503 == ship(1_000)


@pytest.mark.parametrize("each_backend", ["sqlite"], indirect=True)
async def test_a_change_that_finds_a_note_of_damage_keeps_no_lock(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as unaware:
        await one.engine.damage.save("seen")
        with pytest.raises(ServiceUnavailable, match="temporarily unavailable"):
            await unaware.orders.import_batch([Order(1)], "import:1", BY)
        await one.engine.damage.save(None)


def test_a_note_of_damage_is_taken_back_where_the_store_is_sound(cli: CommandLine, scaled_out: dict[str, str]) -> None:
    with psycopg.connect(scaled_out["PETSTORE_DATABASE_URL"]) as database:
        database.execute(Damage.SAVE.encode(), ("seen",))
    cli.must("orders", "import", "-", stdin='{"id":1}')
    cli.execute("UPDATE store SET damage = 'seen'")
    create = ("accounts", "create", "acme", "--plan", "free")
    kept = cli("db", "check", **scaled_out)  # it may be about an index
    assert (1, True) == (
        kept.code,
        "The indexes were not verified." in kept.out and "note of damage was kept" in kept.err,
    )
    add_amcheck(scaled_out["PETSTORE_DATABASE_URL"])
    for settings in ({}, scaled_out):
        assert 1 == cli(*create, **settings).code
        assert "start the servers again" in cli.must("db", "check", **settings).err
        with patch.object(Pool, "fault", return_value="a table is locked"):  # as it was just before
            assert "" == cli.must("db", "check", **settings).err
        cli.must(*create, **settings)


def test_the_doctor_says_what_to_do_about_damage(cli: CommandLine, scaled_out: dict[str, str]) -> None:
    with psycopg.connect(scaled_out["PETSTORE_DATABASE_URL"]) as database:
        database.execute(Damage.SAVE.encode(), ("seen",))
    cli.must("db", "check")
    cli.execute("UPDATE store SET damage = 'seen'")
    for remedy, settings in (("restore FILE", {}), ("promote a replica. petstore db check", scaled_out)):
        found = {each["check"]: each for each in cli("doctor", "--json", **settings).json()}
        assert ("fail", True) == (found["store"]["level"], remedy in found["store"]["remedy"])
    cli.execute("UPDATE store SET damage = NULL")
    damage_table(cli.store, "clock")
    for _ in range(2):
        found = {each["check"]: each for each in cli("doctor", "--json").json()}
        assert "petstore db restore FILE" in found["store"]["remedy"]
        cli.store.write_bytes(b"damaged" * 10_000)


async def test_a_damaged_database_accepts_no_change_and_is_the_reported_reason(postgres_store: Store) -> None:
    await postgres_store.orders.import_batch([Order(1)], "import:1", BY)
    for kind in DAMAGE:  # as PostgreSQL reports it for a page whose checksum is wrong
        statement = f"DO $$ BEGIN RAISE EXCEPTION 'invalid page' USING ERRCODE = '{kind.sqlstate}'; END $$"
        assert "damaged" in await reason(postgres_store.engine.query(statement))
    for call in (postgres_store.orders.change(1, CANCEL, BY), postgres_store.check()):
        assert REMEDY in await reason(call)
    assert REMEDY in (postgres_store.engine.fault() or "")
    assert [(1,)] == await postgres_store.engine.query(Query("SELECT id FROM petstore.orders").sql)


def test_exhausted_connections_are_seen_within_ten_seconds(tmp_path: Path) -> None:
    with running_engine(settings={"max_connections": "16", "superuser_reserved_connections": "0"}) as engine:
        url = engine.url(new_store_database(engine))
        settings = {"PETSTORE_DATABASE_URL": url, "PETSTORE_REDIS_URL": shared_redis().empty()}
        with serving(tmp_path / "unused.db", **settings) as server:
            others: list[psycopg.Connection] = []
            found: list[str] = []
            with engine.admin() as admin:
                ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'petstore'"

                def seen() -> bool:
                    admin.execute(ours)
                    try:
                        while True:
                            others.append(psycopg.connect(url))
                    except psycopg.OperationalError:
                        found.append(readiness(server.admin)[1])
                        return "too many clients" in found[-1]

                within(10.0, seen)
                for other in others:
                    other.close()
            within(10.0, lambda: readiness(server.admin)[0] == 200)
