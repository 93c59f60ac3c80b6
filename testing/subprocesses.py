"""Processes that tests start, such as PostgreSQL, Redis and `petstore serve`: waiting for them, and ending them."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from petstore_server.deadlines import Timeouts

PATIENCE = 120.0
"""Seconds for what ends by itself, such as a process after a signal, on a machine that is busy with other tests."""

PATIENT = Timeouts(*[PATIENCE] * len(Timeouts._fields))
"""Time limits of calls to engines that a busy machine does not reach."""

at_end = ExitStack()
"""Ends what the tests of this process share. One that is interrupted does not reach its exit handlers."""

_SLEPT = 0.02
_MEASURED_SECONDS = 0.1
_sleep = time.sleep  # a test may replace that of the module


class _Lateness(threading.Thread):
    """Notes how much later than it asked for this thread is woken up: the longest time in the last 30 seconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._found: deque[float] = deque([0.0], maxlen=int(30 / _MEASURED_SECONDS))

    def run(self) -> None:
        while True:
            began = time.monotonic()
            _sleep(_MEASURED_SECONDS)
            self._found.append(time.monotonic() - began - _MEASURED_SECONDS)

    @property
    def longest(self) -> float:
        return max(self._found.copy())


_lateness = _Lateness()
_lateness.start()


def busy() -> float:
    """Seconds by which a promised duration may be exceeded: the machine delays the server and the test alike.

    Half a second on an idle machine, for starting and asking; on a busy one, twenty times the delay that it caused a
    thread of this process lately, for there are several processes in a row.
    """
    return min(0.5 + 20 * _lateness.longest, 5.0)


def within(seconds: float, truth: Callable[[], bool]) -> None:
    """Ask until something is true. Raises AssertionError if it is not within the promised time and that of `busy`."""
    began = asked = time.monotonic()
    while not truth():
        assert asked < began + seconds + busy()  # an answer counts by when it was asked for
        time.sleep(_SLEPT)
        asked = time.monotonic()


async def until(condition: Callable[[], bool]) -> None:
    """Wait on an event loop for what ends by itself."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)


def await_ready(process: "Process", is_ready: Callable[[], bool], log: Path) -> None:
    """Return when a started process is ready. AssertionError shows its log if it ends, or is not ready in time."""
    deadline = time.monotonic() + PATIENCE
    while not is_ready():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(_SLEPT)


def started(
    command: Sequence[str], log: Path, is_ready: Callable[[], bool], **options: Any
) -> "subprocess.Popen[bytes]":
    """Start a program, whose output goes to the end of the log, and wait until it is ready; else it is killed."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)
    try:
        await_ready(process, is_ready, log)
    except BaseException:
        kill(process)
        raise
    return process


def environment_with(**settings: str) -> dict[str, str]:
    """The environment of this process with no settings of the service but these."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PETSTORE_")} | settings


def resident(pid: int | str = "self") -> int:
    """The resident memory of a process, in bytes."""
    return _memory(pid, "VmRSS")


def peak_resident(pid: int | str = "self") -> int:
    """The largest resident memory of a process so far, in bytes."""
    return _memory(pid, "VmHWM")


def _memory(pid: int | str, name: str) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024


def demo_output(process: "subprocess.Popen[str]") -> list[str]:
    """The lines that `petstore serve --demo` prints once it serves."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            break
    return lines


_PORTS = range(10_000, 32_000)
"""Below those that the kernel gives to outgoing connections: one of these could take the port of a stopped server."""


def free_port(second: int = 0) -> int:
    """A port on which no process listens, and which stays free while a server is stopped.

    The same holds for the port that is higher by `second`, for a server that listens on both.
    """
    while True:
        port = random.SystemRandom().choice(_PORTS[: len(_PORTS) - second])
        with suppress(OSError):
            for each in (port, port + second):
                socket.create_server(("127.0.0.1", each)).close()
            return port


class Process(Protocol):
    """What there is to know and to do about a process, as with `subprocess.Popen`."""

    @property
    def args(self) -> Any: ...
    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: signal.Signals, /) -> None: ...


def end(process: Process, how: signal.Signals, log: Path | None = None) -> int:
    """Send a signal, and return the exit code.

    A process that does not end in time is killed together with its children, and AssertionError shows the end of its
    log: whatever happens, no process is left.
    """
    process.send_signal(how)
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        state = _state(process.pid)
        kill(process)
        written = log.read_text(errors="replace")[-2_000:] if log else ""
        what = f"{process.args!r} did not end within {PATIENCE} s after {how.name}."
        raise AssertionError(f"{what} {state}{written}") from None


def kill(process: Process) -> None:
    """Kill a process and its children, and wait until they have ended."""
    family = [process.pid, *descendants(process.pid)] if process.poll() is None else []
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    while running(family):
        time.sleep(0.005)


def running(pids: list[int]) -> list[int]:
    """Those of the processes that run; one that has ended and was not waited for does not."""
    return [pid for pid in pids if _status(pid) not in ("", "Z", "X")]


def _status(pid: int) -> str:
    """The letter with which the kernel describes what a process is doing, or "" if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    return ""


def waits_for_stdin(pid: int) -> bool:
    """Whether a thread of the process reads its stdin, in which there is nothing yet."""
    return _waits_in(pid, {"0", "63"}, 0)  # read(2), on x86_64 and on arm64


def waits_to_read(pid: int, file: Path) -> bool:
    """Whether a thread of the process reads the file, such as a pipe, in which there is nothing yet."""
    # Unlike `Path.readlink`, this raises nothing for a file that was closed meanwhile.
    opened = [each for each in Path(f"/proc/{pid}/fd").iterdir() if os.path.realpath(each) == str(file)]
    return any(_waits_in(pid, {"0", "63"}, int(each.name)) for each in opened)


def waits_to_open(pid: int) -> bool:
    """Whether the process opens a file that is not there yet for it, such as a pipe without a writer."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in {"257", "56"}  # openat(2)


def writes_to_stdout(pid: int) -> bool:
    """Whether a thread of the process writes to its stdout, which takes no more."""
    return _waits_in(pid, {"1", "64"}, 1)  # write(2)


def _waits_in(pid: int, calls: set[str], descriptor: int) -> bool:
    found = []
    for thread in Path("/proc").glob(f"{pid}/task/*/syscall"):
        with suppress(OSError):  # a thread that has ended
            found.append(thread.read_text().split()[:2])
    return any(call[0] in calls and call[-1] == hex(descriptor) for call in found)


def descendants(pid: int) -> list[int]:
    """The process ids of all processes that a process started, and those started, as far as they run."""
    found: list[int] = []
    for thread in Path("/proc").glob(f"{pid}/task/*/children"):
        with suppress(OSError):
            for child in map(int, thread.read_text().split()):
                found += [child, *descendants(child)]
    return found


def _state(pid: int) -> str:
    """What a process and its children are doing, one line each."""
    lines = []
    for each in [pid, *descendants(pid)]:
        with suppress(OSError):
            title = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines.append(f"{each} {_status(each)} {title.strip()}\n")
    return "It runs:\n" + "".join(lines) + "Its log ends:\n"
