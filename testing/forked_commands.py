"""Commands of shell scripts, forked from a process with their modules: 20 times as fast."""

import json
import os
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from testing.preloaded import PetstoreProcess, forking
from testing.subprocesses import PATIENCE

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
