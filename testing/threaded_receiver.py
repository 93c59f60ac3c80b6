"""A receiver of webhooks on a thread: its sender may have another event loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from testing.webhook_messages import Received


@dataclass
class ThreadedReceiver:
    """Responds with `status` and `text`, and keeps what it has `received`."""

    url: str = ""
    status: int = 200
    text: str = "thanks"
    received: list[Received] = field(default_factory=list)


@contextmanager
def receiving() -> Iterator[ThreadedReceiver]:
    """A receiver on a free port of 127.0.0.1."""
    receiver = ThreadedReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"]))
            receiver.received.append(Received(self.path, headers, body))
            self.send_response(receiver.status)
            self.end_headers()
            self.wfile.write(receiver.text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
