"""The use cases of operators, over every engine: keys, accounts, orders (D5–D11)."""

import pytest

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.operations import admin_port, orders
from petstore_server.operations.audit import shown_fields
from petstore_server.operations.health import check_postgres, check_redis
from petstore_server.operations.health_machine import check_deployment
from petstore_server.settings import read_settings
from testing.stores import Stores

NOW = 1_795_000_000.0
ACTOR = Actor("operator:test", NOW)


async def test_orders_after_a_failure_of_the_store_are_not_tried(
    file_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    async def fail(order_id: int, *_: object) -> Order:
        tried.append(order_id)
        if order_id >= 50:
            raise ServiceUnavailable("the disk is full" if order_id != 52 else "it is locked")
        return Order(order_id)

    async with file_store.opened() as store:
        monkeypatch.setattr(store.orders, "change", fail)
        outcomes = [each async for each in orders.change_orders(store, range(1000), CANCEL, ACTOR)]
    assert [*range(51), 52] == [order_id for order_id, _ in outcomes]
    assert len(tried) < 1000
    assert [50, 52] == [order_id for order_id, each in outcomes if isinstance(each, ServiceUnavailable)]


URL = {"BASE_URL": "https://api.example.com/v1"}
DEPLOYED = URL | {"TRUSTED_PROXIES": "10.0.0.0/8,2001:db8::/32"}
SIGN_IN = DEPLOYED | {"CONSOLE_USER_HEADER": "X-Forwarded-Email", "CONSOLE_PROXIES": "10.0.0.5"}
PORTS = DEPLOYED | {"PORT": "18099", "ADMIN_PORT": "18099"}
EVERYWHERE = "0.0.0.0"


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, ["address warn Set PETSTORE_BASE_URL,"]),
        ({"ENVIRONMENT": "staging"} | DEPLOYED, ["address warn Set PETSTORE_STAGING_BASE_URL,"]),
        ({"ENVIRONMENT": "staging", "STAGING_BASE_URL": "https://s.example/v1"}, ["proxies warn trusts no proxy."]),
        (URL, ["proxies warn trusts no proxy."]),
        (URL | {"HOST": EVERYWHERE}, []),
        (DEPLOYED, []),
        *[(URL | {"TRUSTED_PROXIES": wide}, [f"proxies warn {wide}: clients"]) for wide in ("0.0.0.0/0", "::/0")],
        (URL | {"TRUSTED_PROXIES": "10.0.0.1,128.0.0.0/7"}, ["proxies warn 128.0.0.0/7: clients"]),
        (DEPLOYED | {"ACCESS_LOG": "all"}, []),
        (DEPLOYED | {"ACCESS_LOG": "off", "LOG_LEVEL": "warning"}, []),
        (DEPLOYED | {"ACCESS_LOG": "errors", "LOG_LEVEL": "warning"}, ["log warn PETSTORE_ACCESS_LOG is errors,"]),
        (DEPLOYED | {"ACCESS_LOG": "all", "LOG_LEVEL": "error"}, ["log warn PETSTORE_ACCESS_LOG is all,"]),
        *[(DEPLOYED | {"ADMIN_HOST": own}, []) for own in ("localhost", "::1", "10.0.0.7", "fd00::7")],
        *[
            (DEPLOYED | {"ADMIN_HOST": wide}, [f"admin warn The admin port listens on {wide}."])
            for wide in (EVERYWHERE, "::", "8.8.8.8", "ops.example.com")
        ],
        (SIGN_IN, ["console warn everybody whom it names is a viewer. Set PETSTORE_CONSOLE_ROLES,"]),
        (SIGN_IN | {"CONSOLE": "off"}, []),
        (SIGN_IN | {"CONSOLE_ROLES": "admin:*"}, ["console ok from 10.0.0.5/32, in the header x-forwarded-email."]),
        (
            SIGN_IN | {"CONSOLE_ROLES": "admin:*", "CONSOLE_PROXIES": "::/0"},
            ["proxies warn ::/0: programs in it can sign in to the console as anybody.", "console ok from ::/0,"],
        ),
        (PORTS, ["ports fail are both 18099:"]),
        (PORTS | {"HOST": EVERYWHERE}, ["ports fail are both 18099:"]),
        (PORTS | {"HOST": "127.0.0.2"}, []),
        (DEPLOYED | {"PORT": "0", "ADMIN_PORT": "0"}, []),
    ],
)
def test_settings_that_are_valid_but_may_not_be_intended_are_reported(
    settings: dict[str, str], found: list[str]
) -> None:
    results = list(check_deployment(read_settings({f"PETSTORE_{name}": settings[name] for name in settings})))
    for result, expected in zip(results, found, strict=True):
        check, level, words = expected.split(" ", 2)
        assert (check, level) == result[:2]
        assert words in f"{result.message} {result.remedy}"


MIB = 1 << 20
REDIS = {"aof_enabled": 1, "appendfsync": "everysec", "maxmemory_policy": "noeviction", "role": "master"}
REDIS |= {"used_memory": 80 * MIB, "maxmemory": 100 * MIB, "redis_version": "7.2"}


@pytest.mark.parametrize(
    ("changed", "messages"),
    [
        ({}, ["Redis 7.2 counts limits,"]),
        ({"valkey_version": "8.1"}, ["Redis 8.1 counts limits,"]),
        ({"maxmemory": 0}, ["Redis 7.2 counts limits,"]),
        (dict.fromkeys(["maxmemory", "maxmemory_policy", "role"]), ["Redis 7.2 counts limits,"]),  # not reported
        ({"aof_enabled": 0, "appendfsync": "no"}, ["Redis has no append-only file:"]),
        ({"appendfsync": "no"}, ["Redis leaves it to the system"]),
        ({"maxmemory_policy": "lru"}, ["Redis evicts keys when its memory is full (lru):"]),
        ({"used_memory": 80 * MIB + 1}, ["Redis uses 80 of its 100 MiB."]),
        ({"role": "slave", "appendfsync": "no"}, ["Redis leaves it", "This Redis is a replica"]),
    ],
)
def test_a_redis_that_may_forget_counts_or_cannot_count_is_reported(
    changed: dict[str, object], messages: list[str]
) -> None:
    reported = {name: value for name, value in (REDIS | changed).items() if value is not None}
    found = list(check_redis(reported))
    level = "ok" if "counts limits" in messages[0] else "warn"
    assert [("redis", level, level == "warn")] * len(messages) == [(*each[:2], each.remedy != "") for each in found]
    assert all(each.message.startswith(words) for each, words in zip(found, messages, strict=True))


SAFE = {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on"}
SAFE |= {"connections": "80", "max_connections": "100", "replicas": "1"}


@pytest.mark.parametrize("name", ["", "synchronous_commit", "fsync", "full_page_writes"])
def test_a_postgresql_with_few_connections_left_or_that_may_lose_changes_is_reported(name: str) -> None:
    for used, level in ((80, "ok"), (81, "warn")):
        connections, durable = check_postgres({**SAFE, "connections": str(used), name: "off"})
        message = f"{used} of 100 connections to PostgreSQL are in use; replicas connected: 1."
        assert ("postgresql", level, message, level == "warn") == (*connections[:3], connections.remedy != "")
        found = ("postgresql", "warn" if name else "ok", bool(name), bool(name))
        assert found == (*durable[:2], f"{name} = off" in durable.message, durable.remedy.startswith(f"Set {name} ="))


def test_times_in_an_entry_are_shown_as_text_at_every_depth() -> None:
    given = {"created_at": 0, "until": 1.5, "last_used_at": None, "at_most": 1, "keys": [{"began": 60, "a_b_c": "x"}]}
    shown = {"createdAt": "1970-01-01T00:00:00Z", "until": "1970-01-01T00:00:01Z", "lastUsedAt": None, "atMost": 1}
    assert shown | {"keys": [{"began": "1970-01-01T00:01:00Z", "aBC": "x"}]} == shown_fields(given)


def test_the_name_in_a_host_header_has_no_port_and_is_in_lower_case() -> None:
    assert ["ops.example", "::1"] == [admin_port.host_name(host) for host in ("Ops.Example.:80", "[::1]:1")]
    malformed = ("", ":80", "a:b", "a/b", "a?b", "a#b", "u@a", "[::1")
    assert [None] * len(malformed) == [admin_port.host_name(host) for host in malformed]


def test_names_of_this_machine_and_addresses_of_the_admin_port() -> None:
    assert all(map(admin_port.is_loopback, ("localhost", "app.localhost", "127.9.9.9", "::1")))
    assert not any(map(admin_port.is_loopback, ("notlocalhost", "localhost.example", "10.0.0.1", "::2")))
    for host, url in (("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("10.0.0.7", "10.0.0.7"), ("fd00::7", "[fd00::7]")):
        settings = read_settings({"PETSTORE_ADMIN_HOST": host, "PETSTORE_ADMIN_PORT": "81"})
        assert f"http://{url}:81" == admin_port.admin_url(settings)
