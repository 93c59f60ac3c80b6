"""`petstore` as the checks run it: commands, and servers that are recorded, frozen, killed and started again."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from testing.preloaded import ServerProcess
from testing.subprocesses import end
from torture import recording
from torture.recording import Options

PATIENCE = 60.0
"""Seconds within which a program starts or ends, on a busy machine."""


def environment(url: str, **more: str) -> dict[str, str]:
    """The settings of a program that uses this store, with none of the caller's own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PETSTORE_")}
    root = Path(__file__).parents[1]
    paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**own, "PYTHONPATH": paths, "PETSTORE_DATABASE_URL": url, **more}


def command(options: Options | None, *arguments: str) -> list[str]:
    """The command line of `petstore`, recorded if there are options."""
    return [sys.executable, "-m", "torture.recording", json.dumps(asdict(options or Options())), *arguments]


def petstore(url: str, *arguments: str, options: Options | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    given = environment(url)
    return subprocess.run(command(options, *arguments), env=given, capture_output=True, text=True, check=False)


@dataclass
class Server:
    """A server that can be ended and started again on the same ports."""

    url: str
    settings: dict[str, str] = field(default_factory=dict)
    options: Options | None = None
    port: int = 0
    admin_port: int = 0
    process: ServerProcess | None = None
    log: Path = field(default_factory=lambda: Path(tempfile.mkstemp(prefix="petstore-torture-", suffix=".log")[1]))

    def start(self) -> "Server":
        """Start it, and wait until it serves."""
        ports = ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        begin = self.log.stat().st_size
        prepare = partial(recording.prepare, self.options or Options())
        self.process = ServerProcess(ports, environment(self.url, **self.settings), self.log, prepare)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self.log.read_bytes()[begin:].splitlines():
                if b'"event":"serving"' in line:
                    found = json.loads(line)
                    self.port, self.admin_port = (int(found[name].rpartition(":")[2]) for name in ("api", "admin"))
                    return self
            time.sleep(0.02)
        raise AssertionError(self.log.read_text()[-2000:])

    def send(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; what does not end is killed, and AssertionError raised."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        return end(process, number, self.log, PATIENCE)

    def memory(self) -> int:
        """Bytes resident."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def descriptors(self) -> int:
        """Open files and sockets."""
        assert self.process is not None
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextmanager
def serving(url: str, options: Options | None = None, **settings: str) -> Iterator[Server]:
    """A server on free ports, ended at the end if it still runs."""
    server = Server(url, settings, options)
    try:
        yield server.start()
    finally:
        try:
            server.end(signal.SIGKILL)
        finally:
            server.log.unlink()
