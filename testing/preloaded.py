"""Servers and commands as processes of their own that start from one in which all modules are loaded already.

Loading them takes longer than most tests. Each is a real process all the same, with its own sockets, signals and
environment. What depends on how a process begins is tested with `petstore` itself (test_start.py).

With TEST_START=process each is the installed program in a new interpreter, as a user starts it, and so are workers.
"""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import cache, partial
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from unittest import mock

START_ANEW = os.environ.get("TEST_START") == "process"
"""Whether servers, their workers and commands are new interpreters, not forked."""

LOADED = [
    "petstore_server.cli.main",
    "petstore_server.cli.service",
    "petstore_server.cli.serving",
    "petstore_server.console.application",
    "petstore_server.limits.redis",
    "petstore_server.engines.postgres",
    "encodings.idna",
    "petstore_server.cli.worker",
    "httpcore2",
    "truststore",
    "petstore_client._client",
    "petstore_client.cli.command",
    "petstore_client.cli.console",
    "testing.forked_work",
    "testing.forked_workers",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
    "testing.prepared",
]


@cache
def forking() -> ForkServerContext:
    """The context that forks processes from a server in which all modules are loaded.

    The fork server skips a module that it cannot find. Python 3.11 does not pass it sys.path, so PYTHONPATH does.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1])):
        forkserver.ensure_running()
    return context


class PetstoreProcess:
    """A command with the methods of `subprocess.Popen` that tests use. Files, or pipes with names, get its output.

    A stream that is None is closed.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        output: "Path | _Passed | None",
        errors: "Path | _Passed | None",
        prepare: Callable[[], object] | None = None,
        *,
        stdin: "Path | _Passed | None" = Path(os.devnull),
        fork_workers: bool = True,
        program: str = "petstore",
    ) -> None:
        """`prepare` is called in the process before it begins. Workers are interpreters unless it forks them."""
        self.args = [program, *arguments]
        begin = partial(_replace, self.args, prepare) if START_ANEW else partial(_run, self.args, prepare, fork_workers)
        given = (begin, dict(environ), (stdin, output, errors), Path.cwd())
        self._process = forking().Process(target=_begin, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.sentinel = self._process.sentinel  # can be read once the process has ended

    def poll(self) -> int | None:
        """The exit code, or None while the process runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired after so many seconds."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class PipedProcess(PetstoreProcess):
    """A command with pipes as its streams."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], prepare: Callable[[], object] | None = None
    ) -> None:
        pipes = [os.pipe(), os.pipe(), os.pipe()]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        stdin, output, errors = map(_Passed, theirs)
        super().__init__(arguments, environ, output, errors, prepare, stdin=stdin)
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin = os.fdopen(pipes[0][1], "w")
        self.stdout, self.stderr = os.fdopen(pipes[1][0]), os.fdopen(pipes[2][0])

    def communicate(self, text: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Write the text and close its stdin; return what it writes to stdout and stderr until it ends.

        One that does not end within the timeout is killed. Raises subprocess.TimeoutExpired.
        """
        with self.stdout, self.stderr, ThreadPoolExecutor(2) as threads:
            output, errors = [threads.submit(stream.read) for stream in (self.stdout, self.stderr)]
            with suppress(BrokenPipeError):  # it may have ended before it read everything
                self.stdin.write(text)
            with suppress(BrokenPipeError):
                self.stdin.close()
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.send_signal(signal.SIGKILL)  # which ends what is read
                self.wait()
                raise
            return output.result(), errors.result()


class _Passed:
    """A descriptor of this process, which the other one gets a copy of."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _received, (reduction.DupFd(self._descriptor),)


def _received(passed: Any) -> int:
    descriptor: int = passed.detach()
    return descriptor


def _begin(
    begin: Callable[[], object], environ: dict[str, str], files: tuple[Path | int | None, ...], folder: Path
) -> None:
    """Begin with this environment, these streams and this directory."""
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    for descriptor, file in enumerate(files):
        mode = os.O_WRONLY | os.O_APPEND | os.O_CREAT if descriptor else os.O_RDONLY
        opened = file if isinstance(file, int) else os.open(file or os.devnull, mode)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - a pipe is not a file
    for name, file in zip(("stdin", "stdout", "stderr"), files, strict=True):
        if file is None:  # as an interpreter finds it when it starts
            getattr(sys, name).close()
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
    begin()


def _replace(arguments: list[str], prepare: Callable[[], object] | None) -> None:
    """Replace this process by the installed program, or by an interpreter that prepares before it runs the program."""
    if prepare is None:
        os.execv(Path(sys.executable).with_name(arguments[0]), arguments)
    run = pickle.dumps(partial(_run, arguments, prepare, False))
    code = f"import pickle, sys; sys.path[:] = {sys.path}; pickle.loads({run!r})()"
    os.execv(sys.executable, [sys.executable, "-c", code])


def _run(arguments: list[str], prepare: Callable[[], object] | None, fork_workers: bool) -> None:
    sys.argv = arguments
    prepared = prepare and prepare()  # kept until the end: it may be what SQLite's files go through
    if arguments[0] == "petstore-client":
        from petstore_client.cli import main
    else:
        from petstore_server.cli.start import main
    from testing.forked_workers import forked_workers

    try:
        with forked_workers() if fork_workers else nullcontext():
            main()
    finally:
        del prepared
