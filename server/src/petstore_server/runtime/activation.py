"""Sockets that systemd opens, and hands to each process of the service that it starts (sd_listen_fds(3)).

Connections wait in their backlog while one process ends and the next one starts, so a restart refuses none.
"""

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

from petstore_server.settings import SettingsError

PUBLIC, ADMIN = "public", "admin"
"""The names of the sockets: FileDescriptorName= of their units. By default systemd uses the name of the unit."""

_NAMES = {PUBLIC: PUBLIC, "petstore.socket": PUBLIC, ADMIN: ADMIN, "petstore-admin.socket": ADMIN}
_FIRST_DESCRIPTOR = 3
_NUMBERS = {"1": 1, "2": 2}  # of sockets: there are no more names
_SHOWN = 50  # characters of a variable
_REMEDY = f"set FileDescriptorName={PUBLIC} and FileDescriptorName={ADMIN} in the units of the two sockets"


def handed_sockets(environ: MutableMapping[str, str]) -> dict[str, socket.socket]:
    """Return the listening sockets that systemd hands to this process, by name; none if there are none.

    Their variables are removed, so that no child takes them for its own. Raises SettingsError.
    """
    process, number, names, _ = (
        environ.pop(variable, "") for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
    )
    if process != str(os.getpid()) or number in ("", "0"):
        return {}
    listed = names.split(":") if names else [""] * _NUMBERS.get(number, 0)
    if len(listed) != _NUMBERS.get(number):
        given = f"LISTEN_FDS is {number[:_SHOWN]!r} and LISTEN_FDNAMES {names[:_SHOWN]!r}"
        raise SettingsError(f"{given}; set a number of 1 or 2, and as many names or none.")
    found: dict[str, socket.socket] = {}
    for descriptor, given in enumerate(listed, _FIRST_DESCRIPTOR):
        name = PUBLIC if number == "1" and given not in _NAMES else _NAMES.get(given)
        if name is None or name in found:
            problem = "twice" if name else f"{given!r}" if given else "without a name"
            raise SettingsError(f"systemd hands over a socket named {problem}; {_REMEDY}.")
        found[name] = _listening(descriptor, name)
    return found


def _listening(descriptor: int, name: str) -> socket.socket:
    with suppress(OSError):  # not a socket
        os.set_inheritable(descriptor, False)
        handed = socket.socket(fileno=descriptor)
        listens = handed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if listens and handed.family in (socket.AF_INET, socket.AF_INET6):
            handed.setblocking(False)
            return handed
    problem = f"What systemd hands over as {name} does not listen on a TCP port"
    raise SettingsError(f"{problem}; use ListenStream=PORT and Accept=no.")
