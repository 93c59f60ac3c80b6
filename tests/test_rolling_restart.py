"""A rolling restart: two hosts behind the shipped nginx file are restarted in turn, and no request fails."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testing.load import NOTHING_FAILED, ORDERS, SCOPES, Load
from testing.nginx_front import front, rendered_for
from testing.process import UNLIMITED, Server, petstore, petstore_json, serving
from testing.redis_engine import own_redis
from testing.subprocesses import free_port

pytestmark = pytest.mark.system


@pytest.fixture(name="redis")
def _redis() -> Iterator[str]:
    with own_redis() as redis:
        yield redis.url


def test_no_request_fails_while_two_hosts_are_restarted_one_after_the_other(tmp_path: Path, redis: str) -> None:
    store = tmp_path / "store.db"
    lines = "".join(f'{{"id":{number}}}\n' for number in range(1, ORDERS + 1))
    assert 0 == petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines).returncode
    petstore_json(store, "accounts", "create", "acme", *UNLIMITED)
    key = petstore_json(store, "keys", "create", "acme", *SCOPES)["key"]
    ports = [free_port(), free_port()]

    with ExitStack() as stack:

        def start(port: int) -> Server:
            more = {"PETSTORE_REDIS_URL": redis, "PETSTORE_TRUSTED_PROXIES": "127.0.0.1"}
            return stack.enter_context(serving(store, "--port", str(port), **more))

        servers = [start(port) for port in ports]
        before = stack.enter_context(front(tmp_path / "nginx", ports[0], rendered_for(*ports)))
        with Load(before, key) as load:
            for place in (0, 1, 0, 1):
                load.wait_for(60)
                assert 0 == servers[place].stop()
                load.wait_for(60)  # the other host has it all, and each connection to this one is refused
                servers[place] = start(ports[place])
            load.wait_for(60)
    assert NOTHING_FAILED == set(load.outcomes), load.outcomes
    assert load.total() > 600
