"""Requests with hostile variation, from a separate process: whatever is remembered for each of them would grow.

    python -m torture.hostile '{"port": 8080, "keys": ["…"], "requests": 100000, "seed": 1}'

Prints how often each status came, as JSON.
"""

import asyncio
import base64
import json
import random
import string
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

_CONNECTIONS = 32
_VISIBLE = string.ascii_letters + string.digits + "-._~!$&'()*+,;=:@%/?"
_SORTS = ("id", "-id", "updatedAt", "-shipDate", "bogus")


@dataclass
class Attack:
    """So many requests, with and without one of these keys."""

    port: int
    keys: list[str]
    requests: int
    seed: int
    statuses: Counter[str] = field(default_factory=Counter)


class Variations:
    """Requests by chance. Each kind varies what the service might remember."""

    def __init__(self, keys: list[str], chance: random.Random) -> None:
        self._keys = keys
        self._chance = chance
        self._kinds: list[Callable[[], bytes]] = [
            self.keys, self.spaces, self.headers, self.addresses, self.cursors, self.filters, self.orders, self.placed,
            self.targets, self.conditions, self.encodings, self.malformed
        ]  # fmt: skip

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self._chance.choice(self._kinds)()

    def _text(self, most: int = 40, of: str = _VISIBLE) -> str:
        return "".join(self._chance.choices(of, k=self._chance.randrange(1, most)))

    def _request(
        self,
        method: str = "GET",
        target: str = "/v2/store/orders?limit=1",
        more: str = "",
        key: str = "",
        body: str = "",
    ) -> bytes:
        key = key or f"Authorization: Bearer {self._chance.choice(self._keys)}\r\n"
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        return f"{method} {target} HTTP/1.1\r\nHost: x\r\n{key}{length}{more}\r\n{body}".encode("latin-1")

    def keys(self) -> bytes:
        """Keys that do not exist."""
        kind = self._chance.choice(("pso_live_", "pso_test_", ""))
        return self._request(key=f"Authorization: Bearer {kind}{self._text(60, string.ascii_letters)}\r\n")

    def spaces(self) -> bytes:
        """A valid key, written in many ways."""
        scheme = "".join(self._chance.choice((letter.upper(), letter)) for letter in "bearer")
        blank = " " * self._chance.randrange(1, 60)
        return self._request(key=f"Authorization:{blank}{scheme} {blank}{self._chance.choice(self._keys)}{blank}\r\n")

    def headers(self) -> bytes:
        """Headers that mean nothing, and request identifiers."""
        names = (self._text(30, string.ascii_letters) for _ in range(self._chance.randrange(1, 20)))
        lines = "".join(f"{name}: {self._text(200)}\r\n" for name in names)
        return self._request(more=f"{lines}X-Request-Id: {self._text(100)}\r\n")

    def addresses(self) -> bytes:
        """Clients behind a proxy, without a key."""
        six = ":".join(f"{self._chance.randrange(65_536):x}" for _ in range(8))
        four = ".".join(str(self._chance.randrange(1, 255)) for _ in range(4))
        return self._request(key=f"X-Forwarded-For: {self._chance.choice((six, four))}\r\n")

    def cursors(self) -> bytes:
        """Cursors that were never given."""
        cursor = base64.urlsafe_b64encode(self._chance.randbytes(self._chance.randrange(1, 60))).decode().rstrip("=")
        return self._request(target=f"/v2/store/orders?cursor={cursor}")

    def filters(self) -> bytes:
        """Filters, sorts and limits of all kinds."""
        low = self._chance.randrange(1 << 63)
        return self._request(
            target=f"/v2/store/orders?petId={low}&limit={self._chance.randrange(1, 1_001)}"
            f"&sort={self._chance.choice(_SORTS)}&updatedFrom=20{self._chance.randrange(10, 99)}-01-01T00:00:00Z"
        )

    def orders(self) -> bytes:
        """Orders that exist, and orders that do not."""
        order_id = self._chance.choice((self._chance.randrange(2_000), self._chance.randrange(-(1 << 63), 1 << 63)))
        method, version = self._chance.choice((("GET", 2), ("DELETE", 1), ("DELETE", 2), ("HEAD", 2)))
        return self._request(method, f"/v{version}/store/orders/{order_id}")

    def placed(self) -> bytes:
        """New idempotency keys, most of them with a body that is refused."""
        key = f"Idempotency-Key: {self._text(200, string.ascii_letters)}\r\nContent-Type: application/json\r\n"
        good = '{"petId":1,"quantity":1}'
        bad = json.dumps({self._text(): self._chance.randrange(1 << 70)})
        return self._request("POST", "/v2/store/orders", key, body=good if self._chance.random() < 0.05 else bad)

    def targets(self) -> bytes:
        """Paths, queries and methods."""
        method = self._chance.choice(("GET", "PUT", "POST", "OPTIONS", self._text(12, string.ascii_uppercase)))
        return self._request(method, f"/v{self._chance.randrange(4)}/{self._text(300)}")

    def conditions(self) -> bytes:
        """Validators that were never given."""
        tags = ", ".join(f'"{self._text(40, string.hexdigits)}"' for _ in range(self._chance.randrange(1, 30)))
        return self._request(target="/v1/store/orders", more=f"If-None-Match: {tags}\r\n")

    def encodings(self) -> bytes:
        """Encodings with weights."""
        names = self._chance.sample(("gzip", "br", "identity", "*", self._text(10, string.ascii_lowercase)), 3)
        lines = ", ".join(f"{name};q=0.{self._chance.randrange(1_000)}" for name in names)
        return self._request(target="/v1/store/orders", more=f"Accept-Encoding: {lines}\r\n")

    def malformed(self) -> bytes:
        """Bytes that are not a request."""
        return self._request()[: self._chance.randrange(4, 60)] + self._chance.randbytes(20) + b"\r\n\r\n"


async def attack(given: Attack) -> None:
    """Send all requests, each connection one after the other, and a new connection where one is closed."""
    requests = islice(Variations(given.keys, random.Random(given.seed)), given.requests)
    await asyncio.gather(*(_connection(given, requests) for _ in range(_CONNECTIONS)))


async def _connection(given: Attack, requests: Iterator[bytes]) -> None:
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    for request in requests:
        if streams is None:
            streams = await asyncio.open_connection("127.0.0.1", given.port)
        try:
            streams[1].write(request)
            head = await asyncio.wait_for(streams[0].readuntil(b"\r\n\r\n"), 12)
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            if length and not request.startswith(b"HEAD"):
                await streams[0].readexactly(int(length))
            given.statuses[head[9:12].decode()] += 1
            closed = b"connection: close" in head
        except (OSError, EOFError, TimeoutError):
            given.statuses["no response"] += 1
            closed = True
        if closed:
            streams[1].transport.abort()
            streams = None
    if streams is not None:
        streams[1].transport.abort()


def main() -> None:
    """Carry out the command line."""
    import uvloop

    given = Attack(**json.loads(sys.argv[1]))
    uvloop.run(attack(given))
    json.dump(given.statuses, sys.stdout)


if __name__ == "__main__":
    main()
