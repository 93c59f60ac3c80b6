"""Copies of a store that programs keep with listChanges."""

import threading
import time

from petstore_client import ChangesResetError, Client, PetstoreError
from petstore_client.v2 import Order


class Mirror:
    """A copy of all orders, kept by a thread as the documentation describes it; `resets` counts its new beginnings."""

    def __init__(self, port: int, key: str) -> None:
        self.copy: dict[int, Order] = {}
        self.resets = 0
        self._client = Client(f"http://127.0.0.1:{port}/v1", api_key=key)
        self._ended = False
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._client.close()
        self._thread.join()

    def _follow(self) -> None:
        token = None
        while not self._ended:
            try:
                for page in self._client.v2.follow_changes(after=token):
                    self.copy.update({order.id: order for order in page.data})
                    token = page.next
            except ChangesResetError:
                self.resets += 1
                self.copy, token = {}, None
            except PetstoreError:  # the outage took longer than the client tries again
                time.sleep(0.2)

    def differing(self, truth: dict[int, Order]) -> list[int]:
        """The orders about which the copy is wrong."""
        return [number for number in truth.keys() | self.copy.keys() if truth.get(number) != self.copy.get(number)]


def listed(port: int, key: str) -> dict[int, Order]:
    """All orders as the client lists them."""
    with Client(f"http://127.0.0.1:{port}/v1", api_key=key) as client:
        return {order.id: order for order in client.v2.iter_orders(limit=1000)}
