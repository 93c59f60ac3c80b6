"""Workers of a server that a test started, forked from its supervisor: starting an interpreter takes six times as long.

Each is a process of its own, with the sockets, environment, session and standard input of any worker.
"""

import asyncio
import os
import signal
import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from petstore_server.cli.worker import worker
from petstore_server.runtime.supervisor import Worker


class _Forked:
    """A process as its supervisor uses it: like `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._end)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def wait(self) -> int:
        await asyncio.wait({self._ended})  # which a cancellation does not end
        return self._ended.result()

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set_result(self.returncode)


def forked_workers() -> AbstractContextManager[Any]:
    """The supervisor of this process forks its workers."""
    return mock.patch.object(Worker, "_spawn", _fork)


async def _fork(supervised: Worker, *handles: int) -> _Forked:
    pid = os.fork()
    if pid == 0:
        _work(handles)
    return _Forked(pid)


def _work(handles: tuple[int, ...]) -> NoReturn:
    """Make this copy of the supervisor as a worker is when it starts, and have it serve."""
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
        kept = {0, 1, 2, *handles}
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
            if descriptor not in kept:
                with suppress(OSError):  # that of the listing itself
                    os.close(descriptor)
        worker([str(handle) for handle in handles])
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.stderr.flush()
        os._exit(status)
