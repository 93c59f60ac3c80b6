"""The audit log as operators search it: bans with their strikes, and filters together."""

import re
import time
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import pytest

from petstore_server.domain import accounts as transitions
from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import Ban
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.domain.placements import Placement
from petstore_server.operations.audit import entry_fields
from petstore_server.store import Store
from testing.cli import CommandLine
from testing.deployment import Deployment
from testing.service import Service, bearer
from testing.stores import on_store

ORDERS = "/v1/store/orders"


async def test_each_ban_of_a_key_is_recorded_with_reason_and_strikes(service: Service) -> None:
    key, key_id = await service.key_and_id()

    async def exhaust() -> None:
        for _ in range(61):
            await service.client.get(ORDERS, headers=bearer(key))
        service.clock.now += 3
        for _ in range(20):
            banned = await service.client.get(ORDERS, headers=bearer(key))
        assert "api_key_banned" == banned.json()["code"]
        await service.background_round()

    await exhaust()
    service.clock.now += 200
    await exhaust()
    entries = [entry_fields(entry) async for entry in service.backend.store.audit.entries()]
    first, second = [entry for entry in entries if entry["action"] == "key.ban"]
    assert ("service", f"key:{key_id}", None) == (first["actor"], first["subject"], first["before"])
    assert {"reason", "strikes", "level", "began", "until"} == first["after"].keys()
    assert [(1, 20), (2, 20)] == [(each["after"]["level"], each["after"]["strikes"]) for each in (first, second)]
    assert "requests that ignored Retry-After" == first["after"]["reason"]


@pytest.fixture
def now() -> float:
    """The present: `--since` is relative to it."""
    return time.time()


@pytest.fixture
def petstore(each_deployment: Deployment, now: float) -> CommandLine:
    """A store with two accounts, their keys, and changes two hours ago, each a minute after the one before."""
    cli = CommandLine(each_deployment)
    for name in ("acme", "globex"):
        cli.must("accounts", "create", name, "--plan", "free", "--as", "ann")
        cli.must("keys", "create", name, "--as", "bob")

    def by(name: str, number: int, request_id: str | None = None) -> Actor:
        return Actor(name, now - 7200 + number * 60, request_id)

    async def change(store: Store) -> None:
        await store.orders.import_batch([Order(number) for number in range(1, 9)], "import-1", by("operator:ann", 0))
        for number, key in enumerate(await store.keys.list(), 1):
            await store.orders.change(number, CANCEL, by(f"key:{key.id}", number, f"req-{number}"))
            await store.usage.save({}, [Ban(key.id, int(now) - 10, int(now) + 600, 1, 20)])
        await store.orders.change(3, CANCEL, by("operator:bob", 3))
        await store.orders.place(Placement(1, "a", 3, 1, None), by("key:key_a", 4, "req-4"))

    on_store(cli.url, change)
    return cli


def test_the_account_of_a_key_that_made_a_change_is_named(petstore: CommandLine) -> None:
    entries = petstore.must("audit", "--json", "--action", "order.cancel").json_lines()
    assert ["acme", "globex", None] == [entry.get("account") for entry in entries]
    lines = petstore.must("audit", "--action", "order.cancel").out
    assert [f"{entries[0]['actor']} of acme"] == re.findall(r"key:\S+ of acme", lines)


def test_a_typed_name_cannot_pass_for_a_verified_one(cli: CommandLine) -> None:
    cli.must("accounts", "create", "acme", "--plan", "free", "--as", "ceo (verified)")
    ceo = Actor("operator:ceo", time.time(), verified=True)
    on_store(cli.url, lambda store: store.accounts.change("acme", transitions.suspend(0), ceo))
    typed, verified = cli.must("audit").out.splitlines()
    assert ["operator:ceo", "(verified)"] == typed.split()[1:3]
    assert ["verified", "operator:ceo", "account.suspend"] == verified.split()[1:4]


def test_filters_together_show_the_entries_that_each_of_them_shows(petstore: CommandLine, now: float) -> None:
    between = datetime.fromtimestamp(now - 7200 + 90, UTC).isoformat()  # between two changes

    def shown(*options: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = petstore.must("audit", "--json", *options).json_lines()
        return found

    def ids(entries: list[dict[str, Any]]) -> list[int]:
        return [entry["id"] for entry in entries]

    keys = {key["account"]: key["id"] for key in petstore.must("keys", "list", "--json").json()}
    everything = shown()
    choices: dict[str, list[str]] = {
        "--account": ["acme", "globex"],
        "--key": list(keys.values()),
        "--order": ["1", "2", "3", "99"],
        "--actor": ["ann", "operator:bob", "service", f"key:{keys['acme']}"],
        "--action": ["orders.import", "key.create", "store.copy", "order.cancel", "order.place"],
        "--request-id": ["req-1", "nothing"],
        "--since": ["1h", between],
        "--until": ["1h", between],
    }
    one_by_one = {(name, value): shown(name, value) for name, values in choices.items() for value in values}
    assert [("orders.import", None), ("order.cancel", "req-1")] == [
        (entry["action"], entry["requestId"]) for entry in one_by_one["--order", "1"]
    ]
    assert ["order.cancel", "key.ban", "key.create"] == [
        entry["action"] for entry in sorted(one_by_one["--key", keys["globex"]], key=lambda entry: entry["at"])
    ]
    for action in choices["--action"]:
        assert [entry for entry in everything if entry["action"] == action] == one_by_one["--action", action]
    assert "order.place" in {entry["action"] for entry in everything}
    firsts = {(name, values[0]): one_by_one[name, values[0]] for name, values in choices.items()}
    for options, entries in [((), everything), *firsts.items()]:
        assert entries[::-1] == shown("--newest-first", *options), options
        assert entries[:1] == shown("--limit", "1", *options), options
        assert entries[::-1][:2] == shown("--newest-first", "--limit", "2", *options), options
    assert ["order.cancel"] == [entry["action"] for entry in one_by_one["--request-id", "req-1"]]
    by_operator, by_request = (petstore.must("audit", "--order", order).out.splitlines()[-1] for order in ("3", "1"))
    assert (False, True) == ("request" in by_operator, by_request.endswith("request req-1"))
    for one, other in combinations(firsts, 2):
        others = ids(one_by_one[other])
        expected = [number for number in ids(one_by_one[one]) if number in others]
        assert expected == ids(shown(*one, *other)), (one, other)
        assert all(number in ids(everything) for number in expected)


def test_an_import_is_one_entry_unless_its_batches_are_asked_for(petstore: CommandLine) -> None:
    rows = "".join(f'{{"id":{number},"quantity":1}}\n' for number in range(1_000, 9_000, 2))
    for text in (rows, rows.replace('"quantity":1', '"quantity":2')):
        petstore.must("orders", "import", "-", "--name", "shop.jsonl", stdin=text)
    started = ("--json", "--action", "orders.import", "--since", "1h")
    first, second = petstore.must("audit", *started).json_lines()
    assert {"file": "shop.jsonl", "created": 4_000} == first["after"]
    assert {"file": "shop.jsonl", "replaced": 4_000} == second["after"]
    batches = petstore.must("audit", *started, "--full").json_lines()
    assert [first["subject"]] * 4 + [second["subject"]] * 4 == [batch["subject"] for batch in batches]
    before = [order for batch in batches[4:] for order in batch["before"]["orders"]]
    after = [order for batch in batches[4:] for order in batch["after"]["orders"]]
    assert [(number, 1) for number in range(1_000, 9_000, 2)] == [(each["id"], each["quantity"]) for each in before]
    assert [(number, 2) for number in range(1_000, 9_000, 2)] == [(each["id"], each["quantity"]) for each in after]
    petstore.must("pets", "import", "-", stdin='{"id":1,"name":"Rex"}\n')
    [pets] = petstore.must("audit", "--action", "pets.import", "--json").json_lines()
    assert 1 == pets["after"]["created"]
