"""API keys that a client puts where they do not belong: in no line of the log, and nowhere in the store."""

import asyncio
import io
import json
import re
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import Order
from petstore_server.domain.texts import percent_decoded
from testing import wire
from testing.deployment import Deployment
from testing.memory import memory
from testing.service import Service, running
from testing.spelled_keys import spelled_keys

KEYS = 5


def parts_of(secret: str, text: str) -> list[str]:
    """What a text holds of a secret, however it is spelled there: seven characters or more."""
    plain = re.sub(r"[^0-9a-z]", "", percent_decoded(text).lower())
    return [part for at in range(len(secret) - 6) if (part := secret[at : at + 7]) in plain]


async def send(service: Service, key: str, method: str, target: str, *lines: str, body: str = "") -> bytes:
    """Send a request with a valid key exactly as it is worded, and return the response."""
    length = f"Content-Length: {len(body)}"
    head = wire.head(method, target, length, "Connection: close", *lines, key=key)
    return await wire.send(service.transport.port, head + body.encode("latin-1"))


@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.large_base_example], phases=[Phase.generate]
)
@given(st.lists(spelled_keys(), min_size=KEYS, max_size=KEYS))
def test_no_spelling_of_a_key_is_logged_counted_or_stored(keys: list[tuple[str, str]]) -> None:
    async def story(service: Service) -> None:
        valid = await service.key(scopes=DEFAULT_SCOPES | {Scope.ORDERS_WRITE})
        await service.orders(*map(Order, range(1, KEYS + 1)))
        for number, (_, spelled) in enumerate(keys, 1):
            for path in (f"/v1/{spelled}", f"/v1/store/orders/{spelled}?{spelled}", f"/docs/{spelled}", f"/{spelled}"):
                await send(service, valid, "GET", path, f"User-Agent: {spelled}", f"X-Request-Id: {spelled}")
            await send(service, valid, "GET", spelled)
            await send(service, valid, "GET", f"/{spelled} ")
            await send(service, spelled, "GET", "/v1/store/orders", f"X-Forwarded-For: {spelled}")
            cancelled = await send(service, valid, "DELETE", f"/v1/store/orders/{number}", f"X-Request-Id: {spelled}")
            assert cancelled.startswith(b"HTTP/1.1 204 ")
            more = ("Content-Type: application/json", f"Idempotency-Key: {spelled}", f"X-Request-Id: {spelled}")
            for fields in ({}, {"reference": spelled}):
                body = json.dumps({"petId": 1, "quantity": 1, **fields})
                await send(service, valid, "POST", "/v2/store/orders", *more, body=body)

    counted: list[str] = []

    async def run(deployment: Deployment) -> None:
        async with running(deployment, PETSTORE_ACCESS_LOG="all", PETSTORE_LOG_LEVEL="debug") as service:
            await story(service)
            counted.append(str(await service.application.collect()))

    with TemporaryDirectory(dir=memory()) as folder, redirect_stderr(io.StringIO()) as log:
        asyncio.run(run(Deployment(Path(folder) / "store.db")))
        stored = b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())
    assert log.getvalue().count('"event":"request answered"') == 10 * KEYS
    for secret, _ in keys:
        assert [] == parts_of(secret, log.getvalue() + counted[0])
        assert [] == parts_of(secret, stored.decode("latin-1"))
