"""One reading of the whole list, in a separate process, so that its memory can be measured.

    python -m bench.reading WAY URL BODY_FILE

with the API key in BENCH_KEY. Prints a JSON array: seconds, growth of memory in MB, number of orders.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from petstore_client import Client, Order
from testing.subprocesses import peak_resident, resident


class _Uncompressed(httpx2.HTTPTransport):
    """A transport that asks for the list without compression."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        return super().handle_request(request)


def _stream(url: str, key: str, **options: Any) -> int:
    with Client(url, api_key=key, **options) as petstore:
        return sum(1 for _ in petstore.iter_orders())


def _whole(url: str, key: str) -> int:
    with Client(url, api_key=key) as petstore:
        return len(petstore.list_orders())


WAYS: dict[str, Callable[[str, str, Path], int]] = {
    "msgspec": lambda _, __, body: len(msgspec.json.decode(body.read_bytes(), type=list[Order])),
    "iter_orders": lambda url, key, _: _stream(url, key, transport=_Uncompressed()),
    "iter_orders_gzip": lambda url, key, _: _stream(url, key),
    "list_orders_gzip": lambda url, key, _: _whole(url, key),
}


def main() -> None:
    way, url, body = sys.argv[1:]
    before = resident()
    began = time.perf_counter()
    number = WAYS[way](url, os.environ.get("BENCH_KEY", ""), Path(body))
    took = time.perf_counter() - began
    print(json.dumps([took, (peak_resident() - before) / 1e6, number]))


if __name__ == "__main__":
    main()
