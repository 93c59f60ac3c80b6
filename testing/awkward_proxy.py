"""A proxy that does to HTTP what proxies may: other letters in header names, and connections that break."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from testing.served_fake import serving

_OWN = {"connection", "date", "server", "keep-alive", "transfer-encoding"}


@contextmanager
def awkward_proxy(target: str, cut: tuple[str, ...] = ("GET",)) -> Iterator[str]:
    """Forward to the server at this address; yields the address of the proxy, with the same path.

    Names of response headers are capitalised, as `Retry-After`. The connection of the first request with each of the
    methods in `cut` breaks after the server has responded, without a byte of the response.
    """
    server = urlsplit(target)
    uncut, lock = set(cut), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def forward(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
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
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _OWN:
                    self.send_header(name.title(), value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_DELETE = do_POST = do_PUT = do_PATCH = forward  # noqa: N815 - as http.server looks for them

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}{server.path}"
