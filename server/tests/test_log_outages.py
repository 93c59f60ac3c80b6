"""`petstore serve` while its stderr cannot be written: nothing but log lines is lost (D9, D12)."""

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

import httpx2
import pytest

from testing.preloaded import PetstoreProcess
from testing.process import Server, begin_demo, environment, new_key, petstore, petstore_json
from testing.redis_engine import shared_redis, wait_for_redis
from testing.subprocesses import PATIENCE, busy, kill, within

ORDERS = "/v1/store/orders"
STRICT = {"PETSTORE_BAN_GRACE_SECONDS": "0", "PETSTORE_BAN_STRIKES": "1"}


@contextmanager
def serving_with_a_log_reader(store: Path, *options: str, **more: str) -> Iterator[tuple[Server, IO[str]]]:
    """`petstore serve` with a pipe as stderr, and the pipe's other end, from which the start was read."""
    pipe = store.with_suffix(".log")
    os.mkfifo(pipe)
    arguments = ["serve", "--port", "0", "--admin-port", "0", *options]
    process = PetstoreProcess(arguments, environment(store, **STRICT, **more), Path(os.devnull), pipe, wait_for_redis)
    log = pipe.open()  # once the process has opened it
    try:
        entry = next(json.loads(line) for line in log if '"event":"serving"' in line)
        yield Server(process, entry["api"], entry["admin"], store), log
    finally:
        kill(process)
        with suppress(OSError):
            log.close()


def closes(log: IO[str]) -> None:
    """The log shipper stops."""
    log.close()


def hangs(log: IO[str]) -> None:
    """The log shipper reads no more, and the pipe is full."""
    with open(f"/proc/self/fd/{log.fileno()}", "wb", buffering=0) as writer:  # noqa: PTH123 - not a path
        flags = fcntl.fcntl(writer, fcntl.F_GETFL)
        fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        for size in (4096, 1):
            with suppress(BlockingIOError):
                while writer.write(b"x" * size):
                    pass


@pytest.mark.parametrize(("fails", "workers"), [(closes, 1), (hangs, 1), (closes, 2)])
def test_a_server_whose_log_reader_fails_goes_on_with_all_its_work(
    tmp_path: Path, fails: Callable[[IO[str]], None], workers: int
) -> None:
    store = tmp_path / "store.db"
    redis = {"PETSTORE_REDIS_URL": shared_redis().empty()} if workers > 1 else {}
    banned, _ = new_key(store)
    revoked, revoked_id = new_key(store, "globex", ("--plan", "pro"))
    settings = {"PETSTORE_ACCESS_LOG": "all", **redis}
    with serving_with_a_log_reader(store, "--workers", str(workers), **settings) as (server, log):
        fails(log)
        with server.client(banned) as client:
            codes = [client.get(ORDERS) for _ in range(62)]
        assert "api_key_banned" == codes[-1].json()["code"]  # saving the ban writes a line
        with server.client(revoked) as client:
            assert 200 == client.get(ORDERS).status_code
            within(5.0, lambda: petstore_json(store, "keys", "list", "--banned") != [])  # its line was written, or not
            petstore(store, "keys", "revoke", revoked_id)
            within(1.0, lambda: 401 == client.get(ORDERS).status_code)
        shown = partial(petstore_json, store, "accounts", "show", "globex", **redis)
        within(1.0, lambda: shown()["windows"][1]["used"] >= 1)  # of the day: the minute may have ended
        assert 200 == httpx2.get(f"{server.admin}/readyz").status_code
        if fails is closes:
            assert server.metrics()["petstore_log_lines_lost_total"] >= 62
        began = time.monotonic()
        assert 0 == server.stop()
        assert time.monotonic() - began < 10 + busy()


def test_a_demo_whose_output_nothing_reads_goes_on(tmp_path: Path) -> None:
    process = begin_demo(tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    entry = next(json.loads(line) for line in process.stderr if '"event":"serving"' in line)
    try:
        assert 200 == httpx2.get(f"{entry['admin']}/readyz").status_code
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(timeout=PATIENCE)  # also if it could not print its keys
        assert [] == list(tmp_path.iterdir())
    finally:
        process.kill()
        process.wait(timeout=PATIENCE)
        process.stderr.close()
