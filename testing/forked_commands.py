"""Commands that the console starts, forked from a process with their modules: an interpreter takes 20 times as long."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from fcntl import F_DUPFD, fcntl
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from typing import Any

from testing.preloaded import forking

_UNUSED = 100  # descriptors from here on are not those of the command


class _Descriptor:
    """A descriptor that is passed to a process, in which it is a number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _detached, (DupFd(self._number),)


def _detached(passed: Any) -> int:
    number: int = passed.detach()
    return number


class ForkedCommand:
    """`petstore` in a process of its own, as `asyncio.subprocess.Process` shows one."""

    def __init__(self, process: ForkServerProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self.stdout, self.stderr = stdout, stderr
        self.terminate, self.kill = process.terminate, process.kill
        self._process = process
        self._ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    async def wait(self) -> int:
        code: int = await asyncio.shield(self._ended)
        return code

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self._ended.set_result(self._process.exitcode)


async def start_command(
    arguments: Sequence[str], environ: Mapping[str, str], stdin: int, kept: int, limit: int
) -> ForkedCommand:
    """Start `petstore` with this standard input, and a descriptor that has the same number there."""
    (stdout, out), (stderr, err) = os.pipe(), os.pipe()
    passed = {0: _Descriptor(stdin), 1: _Descriptor(out), 2: _Descriptor(err), kept: _Descriptor(kept)}
    process = forking().Process(target=_run, args=(list(arguments), dict(environ), passed))
    process.start()
    os.close(out)
    os.close(err)
    return ForkedCommand(process, await _reader(stdout, limit), await _reader(stderr, limit))


async def _reader(descriptor: int, limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit)
    pipe = os.fdopen(descriptor, "rb")
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


def _run(arguments: list[str], environ: dict[str, str], passed: dict[int, int]) -> None:
    os.setsid()
    apart = {number: fcntl(received, F_DUPFD, _UNUSED) for number, received in passed.items()}
    for number, received in apart.items():
        os.dup2(received, number)
        os.close(received)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - of the process
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["petstore", *arguments]
    from petstore_server.cli.main import main

    main()
