"""Sockets that systemd opens and hands to the service (sd_listen_fds(3)): a restart refuses no connection."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from petstore_server.runtime import activation
from petstore_server.settings import SettingsError
from testing.process import PETSTORE, UNLIMITED, environment, new_key, wait_until_serving
from testing.redis_engine import shared_redis
from testing.subprocesses import PATIENCE, end, kill, within

_DESCRIPTORS = count(600, 2)
"""Two for each call, which this process does not use otherwise."""

# As systemd does it: the sockets are descriptors from 3 on, and the variables name the process itself.
_HAND_OVER = """
import os, sys
numbers, command = sys.argv[1].split(","), sys.argv[2:]
for place, number in enumerate(numbers):
    os.dup2(int(number), 100 + place)
for place in range(len(numbers)):
    os.dup2(100 + place, 3 + place)
    os.close(100 + place)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(numbers)), LISTEN_FDNAMES="public:admin")
os.execv(command[0], command)
"""


def start(store: Path, sockets: Sequence[socket.socket], *options: str, **more: str) -> "subprocess.Popen[str]":
    """Start `petstore serve` with the public and the admin socket; its log is `log_of` the store."""
    numbers = [each.fileno() for each in sockets]
    command = [sys.executable, "-c", _HAND_OVER, ",".join(map(str, numbers)), str(PETSTORE), "serve", *options]
    environ = environment(store, PETSTORE_PORT="0", PETSTORE_ADMIN_PORT="0", **more)
    with log_of(store).open("w") as log:
        return subprocess.Popen(command, env=environ, pass_fds=numbers, stderr=log, text=True)


def log_of(store: Path) -> Path:
    return store.with_suffix(".log")


@contextmanager
def listening(number: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1_000)) for _ in range(number)]


def url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_restart_refuses_no_request_while_the_sockets_stay_open(tmp_path: Path, workers: int) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store, plan=UNLIMITED)
    settings = {"PETSTORE_REDIS_URL": shared_redis().empty()} if workers > 1 else {}
    outcomes: Counter[int | str] = Counter()
    stopping = threading.Event()

    def send(address: str) -> None:
        while not stopping.wait(0.05):
            try:  # each time over a new connection, as through a proxy that keeps none
                response = httpx2.get(address, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE)
                outcomes[response.status_code] += 1
            except httpx2.HTTPError as error:
                outcomes[repr(error)] += 1

    with listening(2) as sockets, ThreadPoolExecutor(6) as threads:
        process = start(store, sockets, "--workers", str(workers), **settings)
        try:
            serving = wait_until_serving(process, log_of(store))
            assert (url(sockets[0]), url(sockets[1])) == (serving["api"], serving["admin"])
            asked = [f"{url(sockets[0])}/v1/store/orders"] * 3 + [f"{url(sockets[1])}/livez"] * 3
            sending = [threads.submit(send, address) for address in asked]
            _wait_for_more(outcomes)
            for _ in range(2):  # the second time before all workers serve
                assert 0 == end(process, signal.SIGTERM)
                process = start(store, sockets, "--workers", str(workers), **settings)
                _wait_for_more(outcomes)
            stopping.set()
            for each in sending:
                each.result()
        finally:
            stopping.set()
            kill(process)
    assert {200} == set(outcomes), outcomes


def _wait_for_more(outcomes: Counter[int | str]) -> None:
    begun = outcomes.total()
    within(PATIENCE, lambda: outcomes.total() > begun + 20)


def handed(names: str, *sockets: Any, process: int | None = None) -> list[str]:
    """The names under which this process gets the sockets, as if they were the first descriptors after stderr."""
    environ = {"LISTEN_PID": str(process or os.getpid()), "LISTEN_FDS": str(len(sockets)), "LISTEN_PIDFDID": "1"}
    environ |= {"LISTEN_FDNAMES": names} if names else {}
    first = next(_DESCRIPTORS)
    for place, each in enumerate(sockets):
        os.dup2(each.fileno(), first + place)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(activation, "_FIRST_DESCRIPTOR", activation._FIRST_DESCRIPTOR - 3 + first)  # 3: systemd's
            found = activation.handed_sockets(environ)
        assert [url(each) for each in sockets][: len(found)] == [url(each) for each in found.values()]
        for each in found.values():
            assert (False, False) == (each.get_inheritable(), each.getblocking())
            each.detach()
        assert {} == environ  # no child takes them for its own
        return list(found)
    finally:
        os.closerange(first, first + len(sockets))


@pytest.mark.parametrize("names", ["public", "petstore.socket", "unknown", "api.socket", ""])
def test_a_single_socket_is_the_public_one(names: str) -> None:
    with listening(1) as sockets:
        assert ["public"] == handed(names, *sockets)


def test_sockets_are_taken_by_their_names_and_none_of_another_process() -> None:
    with listening(2) as sockets:
        assert ["admin"] == handed("admin", sockets[0])
        assert ["admin", "public"] == handed("petstore-admin.socket:petstore.socket", *sockets)
        assert [] == handed("public", sockets[0], process=os.getppid())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a refused socket is left open
@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("public:other", "a socket named 'other'"),
        ("public:public", "a socket named twice"),
        (":admin", "a socket named without a name"),
        ("", "a socket named without a name"),
    ],
)
def test_sockets_without_the_right_names_are_refused(names: str, problem: str) -> None:
    with (
        listening(2) as sockets,
        pytest.raises(SettingsError, match=f"systemd hands over {problem}; set FileDescriptorName=public"),
    ):
        handed(names, *sockets)


@pytest.mark.parametrize(
    ("number", "names"),
    [
        *((number, "") for number in ("99999999", "9" * 5_000, "3", "-1", "two", "²")),
        *(("1", "public:admin"), ("2", "public"), ("3", "public:admin:public")),
    ],
)
def test_a_number_of_sockets_that_is_none_or_not_that_of_their_names_is_refused(number: str, names: str) -> None:
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": number, "LISTEN_FDNAMES": names}
    with pytest.raises(SettingsError, match=f"^LISTEN_FDS is '{number[:50]}' and LISTEN_FDNAMES '{names}'; set a"):
        activation.handed_sockets(environ)


@pytest.mark.parametrize("number", ["", "0"])
def test_no_number_of_sockets_is_none(number: str) -> None:
    assert {} == activation.handed_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": number})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a refused socket is left open
def test_a_socket_that_does_not_listen_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as local, socket.socket() as idle, (tmp_path / "file").open("w") as file:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        for each in (local, idle, file):
            with pytest.raises(SettingsError, match="What systemd hands over as public does not listen on a TCP port"):
                handed("public", each)
