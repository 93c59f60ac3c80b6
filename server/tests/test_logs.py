"""The log: JSON Lines, each with its process id; one that cannot be written neither raises nor waits (D9, D12)."""

import fcntl
import io
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

import httpx2
import pytest

from petstore_server.telemetry.logs import LineWriter, configure_logging, write_record
from testing.preloaded import PetstoreProcess
from testing.process import Server, begin_demo, environment, new_key, petstore, petstore_json
from testing.redis_engine import shared_redis, wait_for_redis
from testing.subprocesses import PATIENCE, busy, kill, within

LOG = logging.getLogger("petstore_server.tests")


class Hostile:
    """A value that cannot be turned into text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    configure_logging("info", stream)
    return stream


def test_a_line_is_one_json_object_with_level_time_and_process_id(log: io.StringIO) -> None:
    LOG.warning("key banned", extra={"ban_level": 2, "path": "/keys/pso_live_x"})
    [line] = log.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("timestamp").endswith("Z")
    hidden = {"path": "/keys/pso_live_[hidden]"}
    assert {"event": "key banned", "level": "warning", "ban_level": 2, "pid": os.getpid(), **hidden} == entry


PROGRAM = """
import asyncio, logging, sys, threading, warnings
from petstore_server.cli.failures import logged

class Unraisable:
    def __del__(self):
        raise ValueError("in a finalizer")

kept = []
with logged("info"):
    logging.getLogger("petstore_server.x").warning("ours")
    library = logging.getLogger("python_multipart.multipart")
    library.warning("key pso_live_x")
    library.warning("%d and no number", "text")
    library.info("not of interest")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("uvicorn.error").error("Exception in ASGI application")
    warnings.warn("a warning", RuntimeWarning)
    thread = threading.Thread(target=lambda: 1 // 0)
    thread.start()
    thread.join()
    Unraisable()
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
    loop = asyncio.new_event_loop()
    loop.call_soon(lambda: 1 // 0)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
kept.append(Unraisable())  # until the interpreter ends
raise LookupError("after the end, with pso_live_x")
"""


def test_all_that_is_written_to_stderr_is_json_and_without_keys() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    found = [(line["event"], line.get("message", "").partition("\n")[0], line["level"]) for line in lines]
    library = "message of a library"
    assert found[:4] == [
        ("ours", "", "warning"),
        (library, "key pso_live_[hidden]", "warning"),
        (library, "%d and no number", "warning"),
        (library, "Exception in ASGI application", "error"),
    ]
    assert (library, "warning", True) == (found[4][0], found[4][2], found[4][1].endswith("RuntimeWarning: a warning"))
    errors = [line["exception"].splitlines()[-1] for line in lines if "exception" in line]
    division, finalizer = "ZeroDivisionError: integer division or modulo by zero", "ValueError: in a finalizer"
    last = "LookupError: after the end, with pso_live_[hidden]"
    assert [division, finalizer, division, last, finalizer] == errors
    assert 10 == len(lines)


ENDING = """
import click
from petstore_server.cli import failures
for error in (
    failures.SettingsError("PETSTORE_X is wrong."),
    failures.errors.ServiceUnavailable("it is gone"),
    ZeroDivisionError("a defect"),
):
    try:
        with failures.logged("info"):
            raise error
    except click.exceptions.Exit as end:
        print(end.exit_code)
"""


def test_an_error_that_ends_a_server_is_a_line_of_its_log_and_an_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {("server failed", "error")} == {(line["event"], line["level"]) for line in lines}
    assert [
        ("PETSTORE_X is wrong.", False, "2"),
        ("This cannot be done now: it is gone.", False, "1"),
        ("internal error: ZeroDivisionError: a defect", True, "1"),
    ] == [(line["reason"], "exception" in line, code) for line, code in zip(lines, done.stdout.split(), strict=True)]


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", ["a lone surrogate \udcff", Hostile(), {Hostile(): 1}, 2**70, LOOP, "plain", None])
def test_a_line_is_one_object_whatever_it_holds(log: io.StringIO, value: object) -> None:
    LOG.error("strange", extra={"value": value})
    write_record({"event": "strange", "value": value})
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [{"event", "value", "level", "timestamp", "pid"}, {"event", "value"}] == [{*line} for line in lines]


def test_a_closed_pipe_a_full_disk_and_a_process_without_stderr_lose_lines_and_count_them() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe, Path("/dev/full").open("wb") as full:
        for descriptor in (pipe.fileno(), full.fileno(), -1):
            lines = LineWriter(descriptor)
            for _ in range(3):
                lines.write("lost\n")
            lines.drain()
            assert 3 == lines.lost


def test_a_line_that_a_full_disk_has_cut_off_spoils_no_line_after_it(tmp_path: Path) -> None:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "log").open("wb") as file:
        lines = LineWriter(file.fileno())
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, unlimited[1]))
        try:
            for text in ("first\n", "second\n", "third\n"):
                lines.write(text)
                lines.drain(PATIENCE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        lines.write("fourth\n")
        lines.drain(PATIENCE)
    assert (2, "first\nseco\nfourth\n") == (lines.lost, (tmp_path / "log").read_text())


def test_a_reader_that_has_stopped_delays_neither_a_line_nor_the_end_and_gets_the_lines_that_fit_later() -> None:
    reader, writer = os.pipe()
    lines = LineWriter(writer, capacity=500)
    began = time.monotonic()
    for number in range(1000):
        lines.write(f"{number:1000}\n")
    lines.drain(seconds=0.1)
    assert time.monotonic() - began < 5 + busy()
    received = bytearray()

    def read() -> None:
        while part := os.read(reader, 1 << 16):
            received.extend(part)

    thread = threading.Thread(target=read)
    thread.start()
    lines.drain(seconds=10)
    os.close(writer)
    thread.join(timeout=10)
    os.close(reader)
    assert lines.lost >= 400
    assert 1000 - lines.lost == received.count(b"\n")


@pytest.mark.parametrize("blocking", [True, False], ids=["", "made non-blocking by another program"])
def test_lines_arrive_in_order(blocking: bool) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, blocking)
    lines = LineWriter(writer)
    for number in range(300):
        lines.write(f"{number:1000}\n")
    received = b""
    while received.count(b"\n") < 300:
        received += os.read(reader, 1 << 16)
    assert ([*range(300)], 0) == ([int(line) for line in received.splitlines()], lines.lost)
    os.close(writer)
    os.close(reader)


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
