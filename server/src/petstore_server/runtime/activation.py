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


def handed_sockets(environ: MutableMapping[str, str]) -> dict[str, socket.socket]:
    """Return the listening sockets that systemd hands to this process, by name; none if there are none.

    Their variables are removed, so that no child takes them for its own. Raises SettingsError.
    """
    process, number, names, _ = (
        environ.pop(variable, "") for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
    )
    if process != str(os.getpid()) or not number.isdecimal():
        return {}
    found: dict[str, socket.socket] = {}
    for descriptor, given in enumerate(names.split(":") if names else [""] * int(number), _FIRST_DESCRIPTOR):
        name = PUBLIC if number == "1" and given not in _NAMES else _NAMES.get(given)
        if name is None or name in found:
            problem = "twice" if name else f"{given!r}" if given else "without a name"
            remedy = f"set FileDescriptorName={PUBLIC} and FileDescriptorName={ADMIN} in the units of the two sockets"
            raise SettingsError(f"systemd hands over a socket named {problem}; {remedy}.")
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
