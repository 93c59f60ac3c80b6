"""A fake service behind a socket, for clients in other processes."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

from petstore_client.testing import FakePetstore


class Handler(BaseHTTPRequestHandler, ABC):
    """Has `respond` handle the requests of all methods, and writes nothing about them."""

    protocol_version = "HTTP/1.1"

    @abstractmethod
    def respond(self) -> None:
        """Respond to a request."""

    def do_GET(self) -> None:
        self.respond()

    do_HEAD = do_DELETE = do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815 - the names that http.server looks for

    def content(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def send(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Send a response with these headers and no others."""
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(fake: FakePetstore) -> Iterator[str]:
    """Serve a fake on a port of this host; yields the base URL."""
    lock = threading.Lock()

    class FakeHandler(Handler):
        def handle(self) -> None:
            # A ConnectionError is of a client that was interrupted; a TransportError closes the connection.
            with suppress(ConnectionError, httpx2.TransportError):
                super().handle()

        def respond(self) -> None:
            url = f"http://{self.headers['Host']}{self.path}"
            request = httpx2.Request(self.command, url, headers=list(self.headers.items()), content=self.content())
            with lock:
                response = fake.handle_request(request)
                body = response.read()
            length = [] if response.status_code == 204 else [("Content-Length", str(len(body)))]
            self.send(response.status_code, [*response.headers.items(), *length], body)

    with serving(FakeHandler) as port:
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve with a handler on a free port of this host; yields the port."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield listening.server_port
        listening.shutdown()
        thread.join()
