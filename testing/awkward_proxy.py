"""A proxy that does to HTTP what proxies may: other letters in header names, and connections that break."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from testing.served_fake import Handler, serving

_OWN = {"connection", "date", "server", "keep-alive", "transfer-encoding"}


@contextmanager
def awkward_proxy(target: str, cut: tuple[str, ...] = ("GET",)) -> Iterator[str]:
    """Forward to the server at this address; yields the address of the proxy, with the same path.

    Names of response headers are capitalised, as `Retry-After`. The connection of the first request with each of the
    methods in `cut` breaks after the server has responded, without a byte of the response.
    """
    server = urlsplit(target)
    uncut, lock = set(cut), threading.Lock()

    class Forwarder(Handler):
        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def respond(self) -> None:
            content = self.content()
            connection = http.client.HTTPConnection(str(server.hostname), server.port)
            connection.request(self.command, self.path, content or None, dict(self.headers))
            response = connection.getresponse()
            body = response.read()
            connection.close()
            with lock:
                breaks = self.command in uncut
                uncut.discard(self.command)
            if breaks:
                self.close_connection = True
                return
            kept = [(name.title(), value) for name, value in response.getheaders() if name.lower() not in _OWN]
            self.send(response.status, kept, body)

    with serving(Forwarder) as port:
        yield f"http://127.0.0.1:{port}{server.path}"
