"""A fake service behind a socket, for clients in other processes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

from petstore_client.testing import FakePetstore


@contextmanager
def served(fake: FakePetstore) -> Iterator[str]:
    """Serve a fake on a port of this host; yields the base URL."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            # A ConnectionError is of a client that was interrupted; a TransportError closes the connection.
            with suppress(ConnectionError, httpx2.TransportError):
                super().handle()

        def respond(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            url = f"http://{self.headers['Host']}{self.path}"
            with lock:
                response = fake.handle_request(
                    httpx2.Request(self.command, url, headers=list(self.headers.items()), content=content)
                )
                body = response.read()
            self.send_response_only(response.status_code)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if response.status_code != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_DELETE = do_POST = do_PUT = do_PATCH = respond  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as port:
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
