"""A receiver of webhooks on a thread: its sender may have another event loop."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Self

from testing.served_fake import serving
from testing.webhook_messages import Received


class ThreadedReceiver:
    """Responds with `status` and `text`, and keeps what it has `received`."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.text = "thanks"
        self.received: list[Received] = []

    def take(self, message: Received) -> None:
        """Called with each message before the response to it."""
        self.received.append(message)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Receive on a free port of 127.0.0.1."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers["content-length"]))
                receiver.take(Received(self.path, headers, body))
                self.send_response(receiver.status)
                self.end_headers()
                self.wfile.write(receiver.text.encode())

            def log_message(self, *_: object) -> None:
                pass

        with serving(Handler) as port:
            self.url = f"http://127.0.0.1:{port}/hook"
            yield self


def receiving() -> AbstractContextManager[ThreadedReceiver]:
    """A receiver on a free port of 127.0.0.1."""
    return ThreadedReceiver().running()
