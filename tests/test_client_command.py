"""The command `petstore-client` as a process, with a real server."""

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from petstore_client import Client
from testing.forked_commands import petstore_in
from testing.process import UNLIMITED, new_key, put_orders, serving
from testing.subprocesses import PATIENCE, environment_with


@pytest.fixture(name="environ", scope="module")
def _environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a partner whose store has many orders; PATH has a forked `petstore-client`."""
    store = tmp_path_factory.mktemp("command") / "store.db"
    put_orders(store, 10_000)
    key, _ = new_key(store, plan=UNLIMITED)
    with serving(store) as server, petstore_in(store.parent) as programs:
        path = f"{programs}:{os.environ['PATH']}"
        yield environment_with(PATH=path, PETSTORE_BASE_URL=f"{server.api}/v1", PETSTORE_API_KEY=key)


def run(environ: dict[str, str], *arguments: str, redirections: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command with redirections of a shell."""
    shell = ["sh", "-c", f'exec petstore-client "$@" {redirections}', "sh", *arguments]
    return subprocess.run(shell, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_long_list_streams_through_a_pipe(environ: dict[str, str]) -> None:
    done = run(environ, "orders", "list", "--jsonl")
    assert (0, "") == (done.returncode, done.stderr)
    assert list(range(1, 10_001)) == [json.loads(line)["id"] for line in done.stdout.splitlines()]
    assert 10_000 == len(json.loads(run(environ, "orders", "list", "--json").stdout))


CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("redirections", CLOSED)
def test_every_order_is_cancelled_when_a_stream_is_closed(environ: dict[str, str], redirections: str) -> None:
    first = 20 + 3 * CLOSED.index(redirections)
    ids = range(first, first + 3)
    done = run(environ, "orders", "cancel", *map(str, ids), redirections=redirections)
    assert (0, "") == (done.returncode, done.stderr)
    with Client(base_url=environ["PETSTORE_BASE_URL"], api_key=environ["PETSTORE_API_KEY"]) as client:
        assert {"cancelled"} == {client.v2.get_order(number).status for number in ids}


@pytest.mark.parametrize("redirections", CLOSED[1:3])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["orders", "list", "--limit", "2"], 0),
        (["--verbose", "orders", "list", "--limit", "2", "--json"], 0),
        (["orders", "cancel", "-"], 0),
        (["orders", "cancel", "-5"], 5),
        (["--help"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_closed_stream_does_not_change_the_exit_code(
    environ: dict[str, str], redirections: str, arguments: list[str], code: int
) -> None:
    done = run(environ, *arguments, redirections=redirections)
    assert code == done.returncode
    assert "internal error" not in done.stderr


def test_a_wrong_key_fails_without_showing_it(environ: dict[str, str]) -> None:
    done = run({**environ, "PETSTORE_API_KEY": "pso_live_wrongwrongwrong"}, "--verbose", "orders", "list", "--json")
    assert (1, "") == (done.returncode, done.stdout)
    assert "invalid_api_key" == json.loads(done.stderr.splitlines()[-1])["code"]
    assert "wrongwrong" not in done.stderr
    assert "GET /store/orders responded 401" in done.stderr
