"""Requests with hostile variation, from a separate process: whatever is remembered for each of them would grow."""

import asyncio
import base64
import random
import string
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from petstore_server.domain.keys import Environment, new_key

_CONNECTIONS = 16
_PIPELINED = 32
"""Requests that are sent on a connection before their responses are read."""

_OFTEN = 4
"""How much more often comes what the server answers itself than what the store answers, which takes longer."""

_SECONDS = 30.0
"""Within which the responses to them come."""

_SORTS = ("id", "-id", "updatedAt", "-shipDate", "bogus")


def _table(letters: str) -> bytes:
    """What makes text of these letters from bytes by chance, as `bytes.translate` takes it."""
    return (letters * 256)[:256].encode()


_VISIBLE = _table(string.ascii_letters + string.digits + "-._~!$&'()*+,;=:@%/?")
_LETTERS = _table(string.ascii_letters)
_UPPER = _table(string.ascii_uppercase)
_HEX = _table(string.hexdigits)


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
        remembered = [self.keys, self.spaces, self.headers, self.addresses, self.cursors, self.placed, self.targets,
                      self.conditions, self.encodings]  # fmt: skip
        self._kinds: list[Callable[[], str]] = [*_OFTEN * remembered, self.filters, self.orders]

    def batch(self) -> list[bytes]:
        """Requests for one connection, the last of them malformed: what follows it is not read."""
        kinds = self._chance.choices(self._kinds, k=self._chance.randrange(_PIPELINED))
        return [*(kind().encode("latin-1") for kind in kinds), self.malformed()]

    def _below(self, most: int) -> int:
        """A number from 0, in a third of the time of `randrange`."""
        return int(self._chance.random() * most)

    def _text(self, most: int = 40, of: bytes = _VISIBLE) -> str:
        return self._chance.randbytes(1 + self._below(most)).translate(of).decode()

    def _request(
        self,
        method: str = "GET",
        target: str = "/v1/store/orders",
        more: str = "",
        key: str = "",
        body: str = "",
    ) -> str:
        key = key or f"Authorization: Bearer {self._chance.choice(self._keys)}\r\n"
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        return f"{method} {target} HTTP/1.1\r\nHost: x\r\n{key}{length}{more}\r\n{body}"

    def _address(self) -> str:
        """The header of a proxy."""
        number = self._chance.getrandbits(128)
        six = ":".join(f"{number >> shift & 0xFFFF:x}" for shift in range(0, 128, 16))
        four = ".".join(f"{number >> shift & 0xFF}" for shift in range(0, 32, 8))
        return f"X-Forwarded-For: {six if number & 1 else four}\r\n"

    def keys(self) -> str:
        """Keys that do not exist, from any address."""
        prefix = self._chance.choice(("pso_live_", "pso_test_", ""))
        key = f"{prefix}{self._text(60, _LETTERS)}" if self._below(2) else new_key(Environment.PRODUCTION, self._below)
        return self._request(key=f"{self._address()}Authorization: Bearer {key}\r\n")

    def spaces(self) -> str:
        """A valid key, written in many ways."""
        scheme = "".join(map(self._chance.choice, ("Bb", "Ee", "Aa", "Rr", "Ee", "Rr")))
        blank = " " * (1 + self._below(60))
        return self._request(key=f"Authorization:{blank}{scheme} {blank}{self._chance.choice(self._keys)}{blank}\r\n")

    def headers(self) -> str:
        """Headers that mean nothing, and request identifiers."""
        lines = "".join(f"{self._text(30, _LETTERS)}: {self._text(200)}\r\n" for _ in range(1 + self._below(20)))
        return self._request(more=f"{lines}X-Request-Id: {self._text(100)}\r\n")

    def addresses(self) -> str:
        """Clients behind a proxy, without a key."""
        return self._request(key=self._address())

    def cursors(self) -> str:
        """Cursors that were never given."""
        cursor = base64.urlsafe_b64encode(self._chance.randbytes(1 + self._below(60))).decode().rstrip("=")
        return self._request(target=f"/v2/store/orders?cursor={cursor}")

    def filters(self) -> str:
        """Filters, sorts and limits of all kinds."""
        pet_id, year = self._chance.getrandbits(63), 2010 + self._below(90)
        return self._request(
            target=f"/v2/store/orders?petId={pet_id}&limit={1 + self._below(1_001)}"
            f"&sort={self._chance.choice(_SORTS)}&updatedFrom={year}-01-01T00:00:00Z"
        )

    def orders(self) -> str:
        """Orders that exist, and orders that do not."""
        order_id = self._chance.choice((self._below(200), self._chance.getrandbits(64) - (1 << 63)))
        method, version = self._chance.choice((("GET", 2), ("DELETE", 1), ("DELETE", 2), ("HEAD", 2)))
        return self._request(method, f"/v{version}/store/orders/{order_id}")

    def placed(self) -> str:
        """New idempotency keys, most of them with a body that is refused: memory is compared, not the store."""
        key = f"Idempotency-Key: {self._text(200, _LETTERS)}\r\nContent-Type: application/json\r\n"
        good = '{"petId":1,"quantity":1}'
        bad = f'{{"{self._text()}": {self._chance.getrandbits(70)}}}'
        return self._request("POST", "/v2/store/orders", key, body=bad if self._below(500) else good)

    def targets(self) -> str:
        """Paths, queries and methods."""
        method = self._chance.choice(("GET", "PUT", "POST", "OPTIONS", self._text(12, _UPPER)))
        return self._request(method, f"/v{self._below(4)}/{self._text(300)}")

    def conditions(self) -> str:
        """Validators that were never given."""
        tags = ", ".join(f'"{self._text(40, _HEX)}"' for _ in range(1 + self._below(30)))
        return self._request(more=f"If-None-Match: {tags}\r\n")

    def encodings(self) -> str:
        """Encodings with weights."""
        names = self._chance.sample(("gzip", "br", "identity", "*", self._text(10, _LETTERS)), 3)
        lines = ", ".join(f"{name};q=0.{self._below(1_000)}" for name in names)
        return self._request(more=f"Accept-Encoding: {lines}\r\n")

    def malformed(self) -> bytes:
        """Bytes that are not a request."""
        return self._request().encode()[: 4 + self._below(56)] + self._chance.randbytes(20) + b"\r\n\r\n"


async def attack(given: Attack) -> None:
    """Send requests until so many are answered."""
    variations = Variations(given.keys, random.Random(given.seed))
    await asyncio.gather(*(_connections(given, variations) for _ in range(_CONNECTIONS)))


async def _connections(given: Attack, variations: Variations) -> None:
    """One connection after the other, each with the requests of one batch."""
    while given.statuses.total() < given.requests:
        batch = variations.batch()
        reader, writer = await asyncio.open_connection("127.0.0.1", given.port, limit=1 << 20)
        try:
            writer.write(b"".join(batch))
            async with asyncio.timeout(_SECONDS):
                for request in batch:
                    status, closing = await _response(reader, request)
                    given.statuses[status] += 1
                    if closing:
                        break
        except (OSError, EOFError, TimeoutError):
            given.statuses["no response"] += 1
        writer.transport.abort()


async def _response(reader: asyncio.StreamReader, request: bytes) -> tuple[str, bool]:
    """The status of the response to a request, and whether it is the last one of its connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
    if length and not request.startswith(b"HEAD"):
        await reader.readexactly(int(length))
    return head[9:12].decode(), b"Connection: close" in head


def run(given: Attack) -> Counter[str]:
    """Send the requests from this process, which is for nothing else; return how often each status came."""
    import uvloop

    uvloop.run(attack(given))
    return given.statuses
