"""What becomes of a message for each way in which a receiver fails (D24). The decision's tables list these tests."""

import asyncio
import re
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from petstore_server.domain.orders import CANCEL, Order
from petstore_server.domain.webhooks import RETRY_SECONDS, STOPPED_AFTER, Attempt, Webhook, WebhookState
from petstore_server.store import Store
from petstore_server.webhooks import delivery
from testing.clock import START
from testing.stores import BY, log
from testing.subprocesses import PATIENCE, free_port
from testing.webhooks import (
    Behaviour,
    Delivering,
    Receiver,
    account,
    delivering,
    endless,
    failure,
    hang,
    hang_too_long,
    head,
    reply,
    reset,
    write,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "decisions" / "0026-webhooks.md"
LATER = formatdate(START + 1_800, usegmt=True)
CHUNKED = head(200, "Transfer-Encoding: chunked") + b"5\r\nthank\r\n"


class Case(NamedTuple):
    """How a receiver behaves, and the attempt: its status and what its excerpt has; the pause after it in seconds.

    `pause` is None after a success.
    """

    behaviour: Behaviour
    status: int | None
    excerpt: str
    pause: float | None = float(RETRY_SECONDS[0])


HANGS = "no response within"
LONG = "no response: the response has more than 65536 bytes"
ENDED = "no response: the connection ended, or the response is not HTTP"
CASES = {
    "hangs before its response": Case(hang_too_long, None, HANGS),
    "hangs in the header of its response": Case(write(b"HTTP/1.1 200 OK\r\nDate: ", then=hang_too_long), None, HANGS),
    "hangs in the body of a 2xx": Case(write(CHUNKED, then=hang_too_long), 200, "thank", None),
    "resets the connection before its response": Case(reset, None, "no response"),
    "resets the connection in the body of a 2xx": Case(write(CHUNKED, then=reset), 200, "thank", None),
    "responds with a redirect": Case(reply(307, "Location: /other", body=b"moved"), 307, "moved"),
    "responds with 4xx": Case(reply(404, body=b"no such page"), 404, "no such page"),
    "responds with 429 and Retry-After in seconds": Case(reply(429, "Retry-After: 900"), 429, "", 900.0),
    "responds with 503 and a date in Retry-After": Case(reply(503, f"Retry-After: {LATER}"), 503, "", 1_799.75),
    "responds with 5xx": Case(reply(500, body=b"a traceback"), 500, "a traceback"),
    "sends what is not HTTP": Case(write(b"220 mail.example ESMTP\r\n"), None, ENDED),
    "sends a header without an end": Case(write(b"HTTP/1.1 200 OK\r\nA: ", then=endless(b"b" * 65536)), None, LONG),
    "sends a 2xx with a body without an end": Case(
        write(head(200, "Transfer-Encoding: chunked"), then=endless(b"8000\r\n" + b"c" * 0x8000 + b"\r\n")),
        200,
        "c" * 200,
        None,
    ),
}


@pytest.fixture(name="one")
async def _one(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Delivering]:
    """A process that delivers the changes of a store with an order; it looks at webhooks each time."""
    monkeypatch.setattr(delivery, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(delivery, "CLOSING_SECONDS", 0.1)
    await store.orders.import_batch([Order(1)], "import:1", BY)
    async with delivering(store) as one:
        yield one


async def attempted(one: Delivering, webhook: Webhook) -> tuple[Webhook, Attempt]:
    """The webhook after a round, and its last attempt."""
    await one.round()
    found = await one.found(webhook)
    return found, found.attempts[-1]


@pytest.mark.parametrize("row", CASES)
async def test_a_message_is_repeated_until_its_receiver_responds_with_2xx(row: str, one: Delivering) -> None:
    behaviour, status, excerpt, pause = CASES[row]
    async with Receiver(reply(204), behaviour) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        await one.round()
        before = await one.found(webhook)
        await one.store.orders.change(1, CANCEL, BY)
        after, attempt = await attempted(one, webhook)
        assert (status, True) == (attempt.status, attempt.excerpt.startswith(excerpt))
        if pause is None:
            assert (0.0, 0, None, True) == (after.next_at, after.failures, after.failing_since, attempt.succeeded)
            assert after.position > before.position
            await one.round()
            assert 2 == len(receiver.received)
            return
        ends = attempt.at + attempt.milliseconds / 1_000
        assert (1, attempt.at, before.position) == (after.failures, after.failing_since, after.position)
        assert pytest.approx(ends + pause, abs=0.001) == after.next_at
        one.clock.now = after.next_at - 0.001
        await one.round()
        assert 2 == len(receiver.received)
        one.clock.now = after.next_at
        after, attempt = await attempted(one, webhook)
        assert (204, 0, None) == (attempt.status, after.failures, after.failing_since)
        second, third = receiver.received[1:]
        assert ([1], second.id, second.body) == (third.orders, third.id, third.body)
        assert second.headers["webhook-timestamp"] < third.headers["webhook-timestamp"]


@failure("refuses the connection")
async def test_a_message_is_repeated_until_a_server_listens(one: Delivering) -> None:
    receiver = Receiver()
    receiver.port = free_port()
    webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
    after, attempt = await attempted(one, webhook)
    assert (None, True) == (attempt.status, attempt.excerpt.startswith("no response: no connection"))
    async with receiver:
        one.clock.now = after.next_at
        await one.round()
    assert [1] == receiver.orders


@failure("responds with 410")
async def test_a_receiver_that_is_gone_ends_its_webhook_for_good(
    one: Delivering, caplog: pytest.LogCaptureFixture
) -> None:
    async with Receiver(reply(410)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        after, _ = await attempted(one, webhook)
        assert WebhookState.ENDED is after.state
        one.clock.now += 100_000
        await one.round()
    assert 1 == len(receiver.received)
    [entry] = [entry for entry in await log(one.store) if entry.action == "webhook.end"]
    assert ("service", f"webhook:{webhook.id}") == (entry.actor, entry.subject)
    assert [("webhook ended", webhook.id, webhook.account, 410)] == warned(caplog)


async def test_a_webhook_that_is_stopped_after_three_days_is_in_the_log(
    one: Delivering, caplog: pytest.LogCaptureFixture
) -> None:
    async with Receiver(reply(500), reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        await one.round()
        assert [] == warned(caplog)
        one.clock.now += STOPPED_AFTER
        after, _ = await attempted(one, webhook)
    assert WebhookState.STOPPED is after.state
    assert [("webhook stopped", webhook.id, webhook.account, 500)] == warned(caplog)


def warned(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    """The warnings of deliveries, with the webhook, its account and the status."""
    found = [vars(each) for each in caplog.records if each.levelname == "WARNING" and each.name == delivery.__name__]
    return [(each["message"], each["webhook"], each["account"], each["status"]) for each in found]


@failure("is slow")
async def test_a_slow_receiver_delays_no_other_account(one: Delivering) -> None:
    async with Receiver(usual=hang) as slow, Receiver() as quick:
        await one.webhook(await account(one.store, "slow"), slow.url)
        await one.webhook(await account(one.store, "quick"), quick.url)
        await one.look()
        await asyncio.gather(slow.until(1), quick.until(1))
        await one.store.orders.change(1, CANCEL, BY)
        async with asyncio.timeout(PATIENCE):
            while len(quick.received) < 2:
                await one.look()
                await asyncio.sleep(0.01)
        assert 1 == len(slow.received)


def rows(name: str) -> list[str]:
    """What the first column of the decision's table with this heading has."""
    table = PAGE.read_text().partition(f"\n| {name} | Outcome |\n|---|---|\n")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()]


def test_every_row_of_the_decisions_tables_has_its_test() -> None:
    listed = [row for name in ("A receiver", "A process", "The store", "The network") for row in rows(name)]
    tested = [*CASES]
    for module in sorted((ROOT / "server" / "tests").glob("test_webhook_*.py")):
        tested += re.findall(
            r'^@failure\("([^"]+)"\)\n(?:@.*\n)*(?:async )?def test_', module.read_text(), re.MULTILINE
        )
    assert sorted(listed) == sorted(tested)
