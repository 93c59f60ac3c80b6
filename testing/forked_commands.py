"""Commands of the console and of shell scripts, forked from a process with their modules: 20 times as fast."""

import asyncio
import json
import os
import signal
import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from testing.preloaded import PetstoreProcess, forking
from testing.subprocesses import PATIENCE


class ForkedCommand:
    """`petstore` in a separate process, as `asyncio.subprocess.Process` shows one."""

    def __init__(
        self,
        process: PetstoreProcess,
        written: tuple[int, ...],
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        """`written` are the ends of its pipes that the process opens, which are closed when it has ended."""
        self.stdout, self.stderr = stdout, stderr
        self.terminate = partial(process.send_signal, signal.SIGTERM)
        self.kill = partial(process.send_signal, signal.SIGKILL)
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)
        self._process, self._written = process, written

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        for descriptor in self._written:
            os.close(descriptor)
        self._ended.set_result(self._process.wait())


async def start_command(arguments: Sequence[str], environ: Mapping[str, str], stdin: int, limit: int) -> ForkedCommand:
    """Start `petstore` with this standard input; lines of its output have at most `limit` bytes."""
    here = Path(f"/proc/{os.getpid()}/fd")  # the process opens what this one has open
    named = [argument.replace("/dev/fd/", f"{here}/") for argument in arguments]
    (stdout, out), (stderr, err) = os.pipe(), os.pipe()
    process = PetstoreProcess(named, environ, here / str(out), here / str(err), os.setsid, stdin=here / str(stdin))
    return ForkedCommand(process, (out, err), await _reader(stdout, limit), await _reader(stderr, limit))


async def _reader(descriptor: int, limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit)
    pipe = os.fdopen(descriptor, "rb")
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


_COMMAND = """#!{python} -IS
import json, os, socket, sys
streams = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in range(3)]
opened = [stream if os.path.exists(stream) else None for stream in streams]
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendall(json.dumps([opened, os.getcwd(), sys.argv, dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(server.recv(1)[0])
"""


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        streams, folder, (program, *arguments), environ = json.loads(self.rfile.read())
        stdin, output, errors = (stream and Path(stream) for stream in streams)
        into, name = partial(os.chdir, folder), Path(program).name
        process = PetstoreProcess(arguments, environ, output, errors, into, stdin=stdin, program=name)
        self.wfile.write(bytes([process.wait(PATIENCE)]))


@contextmanager
def petstore_in(folder: Path) -> Iterator[str]:
    """A directory for PATH: `petstore` and `petstore-client` with the streams, environment and directory of the caller.

    A stream that the caller has closed is closed.
    """
    forking()  # not by two threads at the same time
    address = str(folder / "socket")
    for program in (folder / "petstore", folder / "petstore-client"):
        program.write_text(_COMMAND.format(python=sys.executable, address=address))
        program.chmod(0o755)
    with socketserver.ThreadingUnixStreamServer(address, _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield str(folder)
        server.shutdown()
