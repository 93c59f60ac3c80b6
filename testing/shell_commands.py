"""`petstore` in shell scripts, forked from a process with its modules: an interpreter takes 20 times as long."""

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
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendall(json.dumps([os.getpid(), os.getcwd(), sys.argv[1:], dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(server.recv(1)[0])
"""


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        pid, folder, arguments, environ = json.loads(self.rfile.read())
        stdin, output, errors = (Path(f"/proc/{pid}/fd/{descriptor}") for descriptor in range(3))
        process = PetstoreProcess(arguments, environ, output, errors, partial(os.chdir, folder), stdin=stdin)
        self.wfile.write(bytes([process.wait(PATIENCE)]))


@contextmanager
def petstore_in(folder: Path) -> Iterator[str]:
    """A directory for PATH whose `petstore` runs with the streams, the environment and the directory of its caller."""
    forking()  # not by two threads at the same time
    program, address = folder / "petstore", str(folder / "socket")
    program.write_text(_COMMAND.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socketserver.ThreadingUnixStreamServer(address, _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield str(folder)
        server.shutdown()
