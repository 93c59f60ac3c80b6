"""A program that has another process do its work; see `quick_commands`.

It is to start within a few milliseconds, so it runs without `site` and imports only what is part of the interpreter.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import posix
import sys
from typing import Any

_KILL = 9


def start(
    installed: str,
    address: str,
    session: int,
    prefixes: tuple[bytes, ...],
    except_for: bytes,
    settings: dict[bytes, bytes],
    passed_on: tuple[int, ...],
) -> None:
    """Hand the command over and end as it ends; where that would not do, become the installed program.

    It would not in another program's session, nor if variables with these prefixes, but for one, are not set
    as in the settings.
    """
    streams = [each for each in map(int, posix.listdir("/proc/self/fd")) if _is_open(each)]
    connection = _socket.socket(_socket.AF_UNIX)
    own = {name: text for name, text in posix.environ.items() if name.startswith(prefixes) and name != except_for}
    try:
        if own != settings or posix.getsid(0) not in (session, posix.getpid()):
            raise ConnectionError
        connection.connect(address)
    except OSError:
        posix.execv(installed, [installed, *sys.argv[1:]])
    ignored = [number for number in passed_on if _signal.getsignal(number) == _signal.SIG_IGN]
    handled = set(passed_on).difference(ignored)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, handled)
    command = _hand_over(connection, streams, ignored)
    for number in handled:
        _signal.signal(number, lambda number, _: _send_signal(command, number))
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, handled)
    _end(int.from_bytes(connection.recv(2) or bytes([0, _KILL]), "big"))


def _is_open(descriptor: int) -> bool:
    try:
        posix.fstat(descriptor)
    except OSError:
        return False
    return True


def _hand_over(connection: _socket.socket, streams: list[int], ignored: list[int]) -> int:
    """Send all that the command has from this process; return its process id."""
    environ: dict[Any, Any] = posix.environ
    request = marshal.dumps((posix.getpid(), sys.argv[1:], environ, posix.getcwdb(), streams, ignored))
    rights = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in streams)
    connection.sendmsg([len(request).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    connection.sendall(request)
    command = int.from_bytes(connection.recv(8), "big")
    for descriptor in streams:
        posix.close(descriptor)
    return command


def _send_signal(command: int, number: int) -> None:
    try:  # noqa: SIM105 - contextlib takes longer to load than all else
        posix.kill(command, number)
    except ProcessLookupError:  # it has ended, and its status is on the way
        pass


def _end(status: int) -> None:
    if posix.WIFSIGNALED(status):
        number = posix.WTERMSIG(status)
        if number != _KILL:
            _signal.signal(number, _signal.SIG_DFL)
        posix.kill(posix.getpid(), number)
    posix._exit(posix.WEXITSTATUS(status))


with open(f"{sys.argv[0]}.given", "rb") as file:  # noqa: PTH123 - pathlib takes longer to load than all else
    given = marshal.load(file)
start(**given)
