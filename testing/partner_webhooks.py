"""Webhooks of partners: what they ask for over HTTP, and a receiver whose messages are checked."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2

from petstore_server.domain.transitions import Transition
from petstore_server.domain.webhooks import Webhook, WebhookState
from testing.checked_clients import contract
from testing.partners import Partner
from testing.service import Service
from testing.subprocesses import until
from testing.webhooks import Behaviour, Receiver, reply

WEBHOOKS = "/v2/webhooks"
NOWHERE = "https://127.0.0.1:9/orders"  # a port on which nothing listens


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver that responds with thanks. At the end, each message is checked against the contract."""
    async with Receiver(usual=thanks()) as receiver:
        yield receiver
    for message in receiver.received:
        contract().versions["v2"].check_message(message.headers, message.body)


def thanks(status: int = 200) -> Behaviour:
    """Responds with this status and the text `thanks`."""
    return reply(status, body=b"thanks")


async def create(client: Partner, **fields: Any) -> httpx2.Response:
    """The response to createWebhook, with a URL where nothing receives unless there is another one."""
    return await client.send("POST", WEBHOOKS, json={"url": NOWHERE, **fields})


async def created(client: Partner, **fields: Any) -> dict[str, Any]:
    """A new webhook."""
    response = await create(client, **fields)
    assert 201 == response.status_code, response.text
    webhook: dict[str, Any] = response.json()
    return webhook


async def shown(client: Partner, webhook: Mapping[str, Any]) -> dict[str, Any]:
    """The webhook as it is now."""
    response = await client.get(f"{WEBHOOKS}/{webhook['id']}")
    assert 200 == response.status_code
    found: dict[str, Any] = response.json()
    return found


async def patch(client: Partner, webhook: Mapping[str, Any], **fields: Any) -> httpx2.Response:
    """The response to updateWebhook."""
    return await client.send("PATCH", f"{WEBHOOKS}/{webhook['id']}", json=fields)


async def act(client: Partner, webhook: Mapping[str, Any], action: str, **options: Any) -> httpx2.Response:
    """The response to `ping` or `rotate`."""
    return await client.send("POST", f"{WEBHOOKS}/{webhook['id']}/{action}", **options)


async def set_state(service: Service, webhook: Mapping[str, Any], state: WebhookState) -> None:
    """Set a state that only deliveries lead to, with a failure before it."""

    def apply(stored: Webhook) -> Webhook:
        return replace(stored, state=state, failures=9, failing_since=service.clock.now, next_at=service.clock.now + 9)

    await service.backend.store.webhooks.change(webhook["id"], Transition("test", apply), service.actor)


async def deliver(service: Service) -> None:
    """Deliver what there is to deliver, as a serving process does within a second."""
    deliveries = service.backend.deliveries
    assert deliveries is not None
    deliveries._looked_at = 0.0  # as if a second had passed
    await deliveries.look(service.clock.now)
    await until(lambda: not deliveries.under_way)


async def audited(service: Service) -> list[tuple[str, str]]:
    """The actions on webhooks, with what was recorded of each."""
    entries = [entry async for entry in service.backend.store.audit.entries() if entry.subject.startswith("webhook:")]
    return [(entry.action, str(entry)) for entry in entries]
