"""`petstore webhooks`: what operators see of webhooks, and what they do with them (D24)."""

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from petstore_server.domain.timestamps import HOUR
from testing.cli import CommandLine
from testing.deployment import Deployment
from testing.stores import locked, on_store
from testing.threaded_receiver import ThreadedReceiver, receiving
from testing.webhook_messages import SETTINGS


@pytest.fixture(name="receiver")
def _receiver() -> Iterator[ThreadedReceiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(name="shop")
def _shop(each_deployment: Deployment) -> CommandLine:
    """The command line on a store of each engine in turn, with an account that sees its own orders."""
    cli = CommandLine(each_deployment)
    cli.must("accounts", "create", "acme", "--plan", "free", "--orders", "own")
    return cli


def create(cli: CommandLine, url: str = "https://shop.example/hook", *options: str) -> dict[str, Any]:
    made: dict[str, Any] = cli.must("webhooks", "create", "acme", url, *options, "--json", **SETTINGS).json()
    return made


def shown(cli: CommandLine, webhook_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = cli.must("webhooks", "show", webhook_id, "--json").json()
    return fields


def actions(cli: CommandLine, *options: str) -> list[tuple[str, str]]:
    """Who did what to webhooks."""
    entries = cli.must("audit", *options, "--json").json_lines()
    return [(each["actor"], each["action"]) for each in entries if each["action"].startswith("webhook.")]


def test_a_webhook_of_an_account_with_its_own_orders_has_these_only(shop: CommandLine) -> None:
    created = create(shop)
    shop.must("orders", "import", "-", stdin=json.dumps({"id": 1}), **SETTINGS)
    shop.must("orders", "import", "-", stdin=json.dumps({"id": 2, "account": "acme"}))
    shop.must("accounts", "create", "all", "--plan", "free", "--orders", "all")
    other = shop.must("webhooks", "create", "all", "https://all.example/", "--json", **SETTINGS).json()
    shop.must("orders", "import", "-", stdin=json.dumps({"id": 3}))
    owners = {each.id: each.owner for each in on_store(shop.url, lambda store: store.webhooks.of_account())}
    assert [True, None] == [owners[created["id"]] is not None, owners[other["id"]]]
    assert [created["id"]] == [each["id"] for each in shop.must("webhooks", "list", "acme", "--json").json()]


def test_the_lag_is_the_age_of_the_first_change_that_is_not_delivered(shop: CommandLine) -> None:
    webhook = create(shop)["id"]
    assert 0 == shown(shop, webhook)["lag"]
    shop.must("orders", "import", "-", stdin=json.dumps({"id": 1, "account": "acme"}))
    shop.must("orders", "ship", "1")
    time.sleep(1.1)
    assert 1 <= shown(shop, webhook)["lag"] < HOUR


def test_a_webhook_is_replayed_from_a_time(shop: CommandLine) -> None:
    shop.must("orders", "import", "-", stdin=json.dumps({"id": 1}))
    webhook = create(shop)["id"]
    before = int((time.time() - 3 * HOUR) * 1e6)
    shop.must("webhooks", "resume", webhook, "--replay-from", "2h")
    found = on_store(shop.url, lambda store: store.webhooks.find(webhook))
    assert before < (found.position.value or 0) < before + 2 * HOUR * 1_000_000


def test_a_ping_shows_what_was_sent_and_what_came_back(shop: CommandLine, receiver: ThreadedReceiver) -> None:
    webhook = create(shop, receiver.url)
    shop.must("webhooks", "pause", webhook["id"])
    receiver.text = "ok\x1b[31m"
    done = shop.must("webhooks", "ping", webhook["id"], "--json", "--as", "ada", **SETTINGS).json()
    [received] = receiver.received
    assert done["headers"] == received.headers
    assert (received.body.decode(), receiver.url) == (done["body"], done["url"])
    assert received.is_signed(webhook["secret"])
    assert {"status": 200, "excerpt": "ok\\x1b[31m"}.items() <= done["attempt"].items()
    receiver.status = 503
    failed = shop("webhooks", "ping", webhook["id"], **SETTINGS)
    assert (1, "") == (failed.code, failed.err)
    sent = receiver.received[1]
    assert failed.out.startswith(f"POST {receiver.url}\n")
    assert all(f"\n{name}: {value}\n" in failed.out for name, value in sent.headers.items())
    assert re.search(rf"\n\n{re.escape(sent.body.decode())}\n\nAfter [\d,]+ ms:\nHTTP 503\n\nok", failed.out)
    assert [] == shown(shop, webhook["id"])["attempts"], "a ping is not an attempt to deliver"
    assert [("operator:ada", "webhook.ping"), "webhook.ping"] == [actions(shop)[2], actions(shop)[3][1]]


def test_a_ping_says_why_there_is_no_response(shop: CommandLine, receiver: ThreadedReceiver) -> None:
    webhook = create(shop, receiver.url)["id"]
    refused = shop("webhooks", "ping", webhook, **{**SETTINGS, "PETSTORE_WEBHOOK_NETWORKS": ""})
    assert (1, []) == (refused.code, receiver.received)
    assert "not sent: the URL is refused, because it must begin with https://\n" in refused.out


def test_the_old_secret_signs_until_the_grace_has_passed(shop: CommandLine, receiver: ThreadedReceiver) -> None:
    created = create(shop, receiver.url)
    webhook, first = created["id"], created["secret"]

    def signs(*secrets: str) -> list[bool]:
        shop.must("webhooks", "ping", webhook, **SETTINGS)
        return [receiver.received[-1].is_signed(secret) for secret in secrets]

    second = shop.must("webhooks", "rotate", webhook, **SETTINGS).out.strip()
    assert [True, True] == signs(first, second)
    third = shop.must("webhooks", "rotate", webhook, "--grace", "0", "--json", **SETTINGS).json()["secret"]
    assert [False, False, True] == signs(first, second, third)


def test_a_changed_setting_is_taken_by_rotate_all_which_prints_every_new_secret(
    shop: CommandLine, receiver: ThreadedReceiver
) -> None:
    webhooks = [create(shop, receiver.url) for _ in range(2)]
    changed = {**SETTINGS, "PETSTORE_WEBHOOK_SECRET": "another text from which all secrets are derived"}
    new = shop.must("webhooks", "rotate", "--all", "--yes", "--json", **changed).json()
    found = {each["id"]: each["secret"] for each in new}
    for webhook in webhooks:
        shop.must("webhooks", "ping", webhook["id"], **changed)
        received = receiver.received[-1]
        assert [True, False] == [received.is_signed(found[webhook["id"]]), received.is_signed(webhook["secret"])]


def test_rotate_all_is_refused_while_a_server_runs_on_the_file(acme: CommandLine) -> None:
    create(acme)
    with locked(acme.store, shared=False):
        acme("webhooks", "rotate", "--all", "--yes", **SETTINGS).fails(
            6, "A server runs on this store", "stop the service"
        )


def test_without_its_driver_what_is_sent_says_what_to_install(
    acme: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = create(acme)["id"]
    monkeypatch.setitem(sys.modules, "httpcore2", None)
    monkeypatch.delitem(sys.modules, "petstore_server.webhooks.sending", raising=False)
    acme("webhooks", "ping", webhook, **SETTINGS).fails(2, "PETSTORE_WEBHOOK_SECRET is set, but its driver is missing")
    assert 0 == acme("webhooks", "pause", webhook, **SETTINGS).code
