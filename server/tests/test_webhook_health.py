"""What doctor, the console's checks and the metrics say of webhooks (D24)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from petstore_server.domain.accounts import VisibleOrders, edit
from petstore_server.domain.audit import Actor
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.transitions import Transition
from petstore_server.domain.webhooks import Attempt, SigningSecrets, Webhook, WebhookState
from petstore_server.domain.webhooks import edit as edit_webhook
from petstore_server.operations.health import CheckResult, check_webhooks
from petstore_server.store import Store
from petstore_server.store.webhooks import _SUMMARY
from testing.cli import CommandLine
from testing.console import Browser, Console
from testing.service import Service, bearer
from testing.stores import BY, Stores, add_key
from testing.webhook_messages import SETTINGS

DIGEST = SigningSecrets(SETTINGS["PETSTORE_WEBHOOK_SECRET"]).digest
NOW = 1_793_000_000.0
NO_PORTS = {"PETSTORE_PORT": "0", "PETSTORE_ADMIN_PORT": "0"}
FAILED: dict[str, Any] = {"failures": 3, "failing_since": NOW - HOUR, "attempts": (Attempt(NOW - HOUR, 500, 12, ""),)}
PAUSE = edit_webhook(state=WebhookState.PAUSED)
NEVER = "No delivery of a webhook has ever succeeded."


async def add(store: Store, number: int = 1, *, owner: int | None = None, **fields: Any) -> Webhook:
    """A webhook of the first account that has received all that there is, and then was changed."""
    account = (await store.accounts.list())[0]
    clock = await store.search.change_clock()
    webhook = Webhook(f"wh_{number}", account.id, account.name, "https://shop.example/", NOW - DAY, owner)
    webhook = replace(webhook, position=webhook.position._replace(value=clock.at, id=(1 << 63) - 1))
    await store.webhooks.create(webhook, DIGEST, BY)
    return await store.webhooks.change(webhook.id, Transition("test", lambda stored: replace(stored, **fields)), BY)


def said(results: list[CheckResult]) -> list[tuple[str, str, str | None]]:
    return [(result.level, result.message, result.action) for result in results]


async def test_webhooks_that_deliver_are_well(store: Store) -> None:
    await add_key(store)
    assert [] == await check_webhooks(store, None) == await check_webhooks(store, DIGEST)
    await add(store)
    assert [("ok", "Webhooks: 1.", None)] == said(await check_webhooks(store, DIGEST))
    await add(store, 2, delivered_at=NOW, attempts=(Attempt(NOW, 204, 5, ""),))
    last = "Webhooks: 2; the last delivery succeeded at 2026-10-26T07:33:20Z."
    assert [("ok", last, None)] == said(await check_webhooks(store, DIGEST))


async def test_a_firewall_that_forbids_all_deliveries_is_suspected(store: Store) -> None:
    await add_key(store)
    await add(store, **FAILED)
    [result] = await check_webhooks(store, DIGEST)
    assert ("warn", NEVER, "ping webhook") == (result.level, result.message, result.action)
    assert "A firewall may forbid outgoing connections" in result.remedy
    await add(store, 2, delivered_at=NOW, attempts=(Attempt(NOW, 204, 5, ""),))
    failing = "Webhooks that fail: 1, the first since 2026-10-26T06:33:20Z."
    assert [("warn", failing, "list webhooks")] == said(await check_webhooks(store, DIGEST))


async def test_stopped_and_paused_webhooks_are_reported_and_ended_ones_are_not(store: Store) -> None:
    await add_key(store)
    await add(store, 1, **FAILED | {"state": WebhookState.STOPPED, "delivered_at": NOW - 4 * DAY})
    await add(store, 2, **FAILED | {"state": WebhookState.PAUSED})
    await add(store, 3, **FAILED | {"state": WebhookState.ENDED})
    stopped = "Webhooks that were stopped after three days of failures: 1."
    paused = "Webhooks that are paused: 1; they deliver nothing until they are resumed."
    both = [("warn", stopped, "resume webhook"), ("warn", paused, "list webhooks")]
    assert both == said(await check_webhooks(store, DIGEST))


async def test_a_secret_that_is_missing_or_has_changed_is_reported_while_there_are_webhooks(store: Store) -> None:
    await add_key(store)
    await add(store)
    missing = "Webhooks: 1; nothing is delivered, because PETSTORE_WEBHOOK_SECRET is not set."
    assert [("warn", missing, "list webhooks")] == said(await check_webhooks(store, None))
    changed = "PETSTORE_WEBHOOK_SECRET is not the one with which the webhooks were created: no server starts."
    assert [("fail", changed, "replace secrets")] == said(await check_webhooks(store, "another digest"))
    await store.webhooks.delete("wh_1", BY)
    assert [] == await check_webhooks(store, "another digest")


def test_doctor_says_what_to_do_about_webhooks(acme: CommandLine) -> None:
    acme.must("webhooks", "create", "acme", "https://shop.example/hook", **SETTINGS)

    def checked(**settings: str) -> dict[str, str]:
        [found] = [
            each for each in acme("doctor", "--json", **NO_PORTS, **settings).json() if each["check"] == "webhooks"
        ]
        return dict(found)

    assert "ok" == checked(**SETTINGS)["level"]
    assert checked()["remedy"].endswith("or delete the webhooks. petstore webhooks list")
    changed = {"PETSTORE_WEBHOOK_SECRET": "another text from which all secrets are derived"}
    assert checked(**changed)["remedy"].endswith("replace all secrets. petstore webhooks rotate --all")
    done = acme("doctor", **NO_PORTS, **changed)
    assert (1, True) == (done.code, "FAIL  webhooks: PETSTORE_WEBHOOK_SECRET is not the one" in done.out)
    assert "another text" not in done.out


@pytest.mark.parametrize(("names", "reported"), [((), True), (("README",), True), (("5ed36f99.0",), False)])
def test_doctor_says_if_the_machine_trusts_no_authority(
    acme: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], reported: bool
) -> None:
    """Without the package ca-certificates, as in a minimal image. Only webhooks need them."""
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))

    def found(**settings: str) -> list[tuple[str, bool]]:
        results = acme("doctor", "--json", **NO_PORTS, **settings).json()
        return [(r["level"], "ca-certificates" in r["remedy"]) for r in results if r["check"] == "certificates"]

    assert [] == found()
    assert [("warn", True)] * reported == found(**SETTINGS)


@pytest.mark.settings(**SETTINGS)
async def test_the_console_shows_what_is_wrong_with_webhooks(console: Console, browser: Browser) -> None:
    await add_key(console.store)
    await add(console.store, **FAILED)
    await console.check()
    assert NEVER in await browser.get("/")


async def test_the_summary_knows_the_first_change_that_is_not_delivered(store: Store) -> None:
    key = await add_key(store)
    account = (await store.accounts.find(key.account)).id

    async def behind_since() -> float | None:
        return (await store.webhooks.summary()).behind_since

    async def updated(order_id: int) -> float:
        [(at,)] = await store.engine.query("SELECT updated_at FROM petstore.orders WHERE id = %s", (order_id,))
        return int(at) / 1_000_000

    await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
    await add(store, 1)
    await add(store, 2, statuses=(Status.CANCELLED,))
    assert None is await behind_since()
    await store.orders.change(1, CANCEL, BY)
    await store.orders.change(2, CANCEL, BY)
    assert await updated(1) == pytest.approx(await behind_since())
    await store.webhooks.change("wh_1", PAUSE, BY)
    assert None is await behind_since(), "one with statuses counts only while it fails"
    await add(store, 3, statuses=(Status.CANCELLED,), **FAILED)
    assert NOW - HOUR == await behind_since()
    await store.webhooks.change("wh_3", PAUSE, BY)
    await store.accounts.change(key.account, edit(None, None, VisibleOrders.OWN), BY)
    await add(store, 4, owner=account)
    await store.orders.import_batch([Order(3)], "import:2", BY)
    assert None is await behind_since(), "its account does not see that order"


async def test_the_summary_reads_orders_by_an_index(file_store: Stores) -> None:
    async with file_store.opened() as store:
        plan = "\n".join(str(row) for row in await store.engine.query(f"EXPLAIN QUERY PLAN {_SUMMARY}"))
    assert "SEARCH orders USING COVERING INDEX orders_by_updated_at (updated_at>" in plan
    assert "SEARCH orders USING COVERING INDEX own_orders_by_updated_at (account_id=? AND updated_at>" in plan
    assert "SCAN orders" not in plan


async def metrics(service: Service) -> dict[str, float]:
    """The metrics of webhooks, by name and label."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for metric in await service.application.collect()
        for sample in metric.samples
        if "webhook" in sample.name
    }


@pytest.mark.settings(**SETTINGS)
async def test_metrics_count_deliveries_and_webhooks_without_names(each_deployment: object, service: Service) -> None:
    nothing = {"petstore_webhook_deliveries_total delivered": 0, "petstore_webhook_deliveries_total failed": 0}
    states = {f"petstore_webhooks {state}": 0 for state in ("active", "failing", "stopped", "paused")}
    assert nothing | states | {"petstore_webhook_lag_seconds": 0} == await metrics(service)
    await service.key()
    store, deliveries = service.backend.store, service.backend.deliveries
    await add(store, 1)
    await add(store, 2, **FAILED)
    await add(store, 3, **FAILED | {"state": WebhookState.STOPPED})
    await add(store, 4, state=WebhookState.PAUSED)
    assert deliveries is not None
    deliveries.outcomes.update({"delivered": 5, "failed": 3})
    await store.orders.import_batch([Order(1)], "import:1", Actor("operator:test", NOW))
    service.clock.now = 4_000_000_000.0  # decades after the order was stored
    found = await metrics(service)
    lag = found.pop("petstore_webhook_lag_seconds")
    assert 1_000_000_000 < lag < 4_000_000_000
    delivered = {"petstore_webhook_deliveries_total delivered": 5, "petstore_webhook_deliveries_total failed": 3}
    assert delivered | dict.fromkeys(states, 1) == found


async def test_a_service_without_webhooks_has_no_metrics_of_them(service: Service) -> None:
    await service.client.get("/v1/store/orders", headers=bearer(await service.key()))
    assert {} == await metrics(service)
