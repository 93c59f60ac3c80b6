"""Sockets that listen for connections."""

import errno
import socket

BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted."""

# The second one is for a link-local address without its interface, the third for IPv6 where the system has none.
_FOREIGN = {errno.EADDRNOTAVAIL, errno.EINVAL, errno.EAFNOSUPPORT}


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on the address. Raises OSError.

    Binding is not enough: two sockets may be bound to one port, until one of them listens.
    """
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def is_foreign_address(error: OSError) -> bool:
    """Whether what `listening_socket` raised means that the address is not of this machine, whatever the port."""
    return isinstance(error, socket.gaierror) or error.errno in _FOREIGN
