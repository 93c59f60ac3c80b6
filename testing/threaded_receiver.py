"""A receiver of webhooks on a thread: what sends to it may have an event loop of its own."""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

SIGNING = {
    "PETSTORE_WEBHOOK_SECRET": "the text from which all secrets are derived",
    "PETSTORE_WEBHOOK_NETWORKS": "127.0.0.0/8",
}
"""Settings with which webhooks can be sent to this machine."""


class Delivered(NamedTuple):
    """A request that was received. The names of its headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: str

    def is_signed(self, secret: str) -> bool:
        """Whether one of the signatures is that of the secret (Standard Webhooks 1.0.0)."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.{self.body}".encode()
        digest = hmac.digest(b64decode(secret.removeprefix("whsec_")), signed, "sha256")
        return f"v1,{b64encode(digest).decode()}" in self.headers["webhook-signature"].split(" ")


@dataclass
class ThreadedReceiver:
    """Responds with `status` and `text`, and keeps what it has `received`."""

    url: str = ""
    status: int = 200
    text: str = "thanks"
    received: list[Delivered] = field(default_factory=list)


@contextmanager
def receiving() -> Iterator[ThreadedReceiver]:
    """A receiver on a free port of 127.0.0.1."""
    receiver = ThreadedReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"])).decode()
            receiver.received.append(Delivered(self.path, headers, body))
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
