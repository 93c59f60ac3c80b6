"""Messages of webhooks as receivers get them, and the settings with which a server sends them to this machine."""

import hmac
import json
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

SECRET = "the text from which all secrets are derived"
SETTINGS = {"PETSTORE_WEBHOOK_SECRET": SECRET, "PETSTORE_WEBHOOK_NETWORKS": "127.0.0.0/8"}


class Received(NamedTuple):
    """A request that a receiver has read. The names of its headers are in lower case."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def orders(self) -> list[int]:
        """The identifiers of the orders in the message."""
        return [order["id"] for order in self.message["data"].get("orders", [])]

    def is_signed(self, secret: str) -> bool:
        """Whether a signature is that of the secret, as a receiver finds out (Standard Webhooks 1.0.0)."""
        key = b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()
        return expected in self.headers["webhook-signature"].split(" ")
