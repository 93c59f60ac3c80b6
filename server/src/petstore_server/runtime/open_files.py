"""How many connections the limit on open files allows."""

import resource

from petstore_server.settings import SettingsError

_RESERVED_FILES = 256
"""File descriptors kept for everything but client connections."""

_DEFAULT_CONNECTIONS = 10_000
"""The default maximum if the limit on open files allows it. A connection takes some 10 KB, and 120 KB at most."""


def allowed_connections(wanted: int) -> int:
    """The maximum number of connections: `wanted`, or, if that is 0, what the limit on open files allows.

    Raises that limit as far as the system permits. Raises SettingsError if it allows fewer than are wanted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(wanted, _DEFAULT_CONNECTIONS) + _RESERVED_FILES
    if files > soft:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (files if hard == resource.RLIM_INFINITY else min(files, hard), hard)
        )
    allowed = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _RESERVED_FILES)
    if wanted > allowed:
        raise SettingsError(
            f"PETSTORE_MAX_CONNECTIONS is {wanted}, but the limit on open files allows {allowed}: raise that limit "
            "(ulimit -n, or LimitNOFILE in a systemd unit) or lower the setting."
        )
    return wanted or min(allowed, _DEFAULT_CONNECTIONS)
