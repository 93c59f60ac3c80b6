"""Programs that start quickly: the command is forked from a process that has loaded its modules already.

Such a program can be started in any way: by a shell, with streams closed, on a terminal. It hands its open files, its
environment, its limits and the signals that it ignores to the command, passes signals on to it, and ends as it ends.
Where that would not be the same (in another program's session, with other settings of Python or of the language), it
becomes the installed program. Tests of how a process begins and of what SIGKILL leaves start that one themselves.
"""

import atexit
import fcntl
import gc
import io
import marshal
import os
import pkgutil
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, TextIO, cast

from testing.memory import memory
from testing.preloaded import forking

_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
_MAX_START = 127
"""Characters that every kernel reads of a first line that names an interpreter; none reads a path with spaces."""

_MAX_FILES = 100

_SETTINGS = (b"PYTHON", b"LC_", b"LANG")
"""How the names of variables begin that an interpreter reads when it starts."""

_ENCODING = "PYTHONIOENCODING"
"""The one that may differ, for the streams are made anew."""


@cache
def quick_command(name: str = "petstore", main: str = "petstore_server.cli.main") -> str:
    """The path of a program that does what the installed one of this name does, whose main module is named."""
    installed = str(Path(sys.executable).with_name(name))
    start = f"#!{sys.executable} -IS"
    if len(start) > _MAX_START or len(start.split()) > 2:
        return installed
    folder = Path(tempfile.mkdtemp(prefix="petstore-commands-", dir=memory()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = f"\0{folder}"  # not a file: Linux has such addresses
    given = {
        "installed": installed,
        "address": address,
        "session": os.getsid(0),
        "prefixes": _SETTINGS,
        "except_for": _ENCODING.encode(),
        "settings": {
            variable: text
            for variable, text in os.environb.items()
            if variable.startswith(_SETTINGS) and variable != _ENCODING.encode()
        },
        "passed_on": tuple(map(int, _PASSED_ON)),
    }
    (folder / f"{name}.given").write_bytes(marshal.dumps(given))
    (folder / name).write_text(f"{start}\n{Path(__file__).with_name('quick_program.py').read_text()}")
    (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(50)
        forking().Process(target=_start_commands, args=(listener, main, installed), daemon=True).start()
    return str(folder / name)


class _Request(NamedTuple):
    """What a program hands over."""

    sender: int
    arguments: list[str]
    environ: dict[bytes, bytes]
    folder: bytes
    streams: list[int]
    ignored: list[int]


def _start_commands(listener: socket.socket, main: str, installed: str) -> None:
    """Start the commands that programs ask for, each from a separate process, until the test process has ended."""
    parent = parent_process()
    assert parent is not None
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    package = import_module(main.partition(".")[0])
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(".__main__"):
            import_module(module.name)
    gc.freeze()  # what all commands share is not looked at by each
    while parent.sentinel not in _ready(listener, parent.sentinel):
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _start_command(connection, main, installed)
        connection.close()


def _start_command(connection: socket.socket, main: str, installed: str) -> NoReturn:
    """Start the command and report its process id and how it ends. It is killed when the program is."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(connection, 8, _MAX_FILES)
    with connection.makefile("rb") as file:
        request = _Request(*marshal.loads(file.read(int.from_bytes(head, "big"))))
    command = os.fork()
    if command == 0:
        connection.close()
        _take_over(request, streams)
        _run(main, [installed, *request.arguments])
    for stream in streams:
        os.close(stream)
    with suppress(OSError):  # of a program that was killed
        connection.sendall(command.to_bytes(8, "big"))
    ended = os.pidfd_open(command)
    if ended not in _ready(ended, connection):
        os.kill(command, signal.SIGKILL)
    _, status = os.waitpid(command, 0)
    with suppress(OSError):
        connection.sendall(status.to_bytes(2, "big"))
    os._exit(0)


def _ready(*files: Any) -> list[Any]:
    """Wait until there is something to read from one of the files; return those."""
    return select.select(files, [], [])[0]


def _take_over(request: _Request, streams: list[int]) -> None:
    """Make this process as the program was that asked for it."""
    for passed_on in _PASSED_ON:
        default = signal.default_int_handler if passed_on == signal.SIGINT else signal.SIG_DFL
        signal.signal(passed_on, signal.SIG_IGN if passed_on in request.ignored else default)
    if os.getsid(request.sender) == request.sender:
        os.setsid()
    os.environb.clear()
    os.environb.update(request.environ)
    os.chdir(request.folder)
    highest = max([2, *request.streams]) + 1
    apart = [fcntl.fcntl(stream, fcntl.F_DUPFD, highest) for stream in streams]
    os.closerange(0, highest)
    for number, stream in zip(request.streams, apart, strict=True):
        os.dup2(stream, number)
    os.closerange(highest, os.sysconf("SC_OPEN_MAX"))
    for limit in _LIMITS:
        resource.setrlimit(limit, resource.prlimit(request.sender, limit))
    sys.stdin, sys.stdout, sys.stderr = (_stream(number, "rww"[number]) for number in range(3))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[assignment, misc]


def _stream(number: int, mode: str) -> TextIO | None:
    """The stream as the interpreter makes it when it starts."""
    encoding, _, errors = os.environ.get(_ENCODING, "").partition(":")
    unbuffered = mode == "w" and bool(os.environ.get("PYTHONUNBUFFERED"))
    with suppress(OSError):
        buffer = open(number, f"{mode}b", buffering=0 if unbuffered else -1, closefd=False)  # noqa: SIM115
        errors = "backslashreplace" if number == 2 else errors or "strict"
        lines = number == 2 or buffer.isatty()
        return io.TextIOWrapper(
            cast(BinaryIO, buffer), encoding or "utf-8", errors, "\n", lines, write_through=unbuffered
        )
    return None


def _run(main: str, arguments: list[str]) -> NoReturn:
    """Run the command and end this process, with the status of an interpreter that cannot write what is left."""
    sys.argv = arguments
    status = 1
    try:
        import_module(main).main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    except BaseException:  # noqa: BLE001 - is reported as by the interpreter
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as does the end of the interpreter
    try:
        sys.stdout and sys.stdout.flush()
    except OSError:
        status = 120
    os._exit(status)
