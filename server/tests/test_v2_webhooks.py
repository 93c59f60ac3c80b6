"""Webhooks over HTTP: what each operation takes and returns, and to whom it shows what (D24)."""

import asyncio
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.keys import Scope
from petstore_server.operations.audit import ACTIONS
from petstore_server.store import webhooks as store_module
from testing.deployment import Deployment
from testing.partner_webhooks import (
    NOWHERE,
    WEBHOOKS,
    act,
    audited,
    create,
    created,
    deliver,
    patch,
    receiving,
    shown,
)
from testing.partners import CHANGES, Partner, partner, set_orders
from testing.service import Service, bearer, code, embedded, running
from testing.webhook_messages import SETTINGS

FIELDS = {"id", "url", "state", "createdAt", "lag", "attempts"}
MISSING = "wh_000000000000"
OF_ONE = [("GET", ""), ("HEAD", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/ping"), ("POST", "/rotate")]
"""The operations on one webhook, by method and the end of the path."""

OF_ALL = [("GET", ""), ("HEAD", ""), ("POST", "")]

pytestmark = [pytest.mark.usefixtures("each_deployment"), pytest.mark.settings(**SETTINGS)]


async def test_a_new_webhook_is_shown_with_its_secret_and_later_without(service: Service) -> None:
    client = await partner(service)
    response = await create(client, statuses=["shipped", "cancelled", "shipped"])
    webhook = response.json()
    assert (201, "no-store") == (response.status_code, response.headers["cache-control"])
    assert f"{WEBHOOKS}/{webhook['id']}" == str(response.url.join(response.headers["location"]).path)
    assert FIELDS | {"statuses", "secret"} == webhook.keys()
    assert (NOWHERE, "active", ["shipped", "cancelled"]) == (webhook["url"], webhook["state"], webhook["statuses"])
    assert (0, [], "2026-10-26T07:33:20Z") == (webhook["lag"], webhook["attempts"], webhook["createdAt"])
    secret = webhook.pop("secret")
    assert 32 == len(b64decode(secret.removeprefix("whsec_")))
    assert webhook == await shown(client, webhook)
    assert {"data": [webhook]} == (await client.get(WEBHOOKS)).json()
    assert webhook == (await patch(client, webhook)).json()
    assert secret != (await created(client))["secret"]


async def test_every_action_on_webhooks_is_found_by_its_request(service: Service) -> None:
    client = await partner(service)
    made = await create(client)
    one = made.json()
    responses = {"create": made, "edit": await patch(client, one, state="paused")}
    responses |= {action: await act(client, one, action) for action in ("ping", "rotate")}
    responses["delete"] = await client.send("DELETE", f"{WEBHOOKS}/{one['id']}")
    every = {f"webhook.{action}" for action in responses} | {"webhook.end", "webhook.stop"}
    assert {action for action in ACTIONS if action.startswith("webhook.")} == every
    for action, response in responses.items():
        filters = AuditFilters(request_id=response.headers["x-request-id"])
        found = [entry.action async for entry in service.backend.store.audit.entries(filters)]
        assert [f"webhook.{action}"] == found


async def test_a_paused_webhook_can_be_created_and_null_stands_for_the_default(service: Service) -> None:
    client = await partner(service)
    assert "paused" == (await created(client, state="paused"))["state"]
    webhook = await created(client, state=None, statuses=None, after=None)
    assert (FIELDS | {"secret"}, "active") == (set(webhook), webhook["state"])
    assert FIELDS | {"secret"} == (await created(client, statuses=[])).keys()


async def test_webhooks_are_listed_oldest_first_and_have_etags(service: Service) -> None:
    client = await partner(service)
    assert {"data": []} == (await client.get(WEBHOOKS)).json()
    ids = []
    for _ in range(3):
        service.clock.now += 1
        ids.append((await created(client))["id"])
    assert ids == [webhook["id"] for webhook in (await client.get(WEBHOOKS)).json()["data"]]
    for path in (WEBHOOKS, f"{WEBHOOKS}/{ids[0]}"):
        head = await client.send("HEAD", path)
        assert (200, b"") == (head.status_code, head.content)
        condition = {"If-None-Match": head.headers["etag"]}
        assert 304 == (await client.send("GET", path, headers=condition)).status_code
        await patch(client, {"id": ids[0]}, statuses=["pending"])
        assert 200 == (await client.send("GET", path, headers=condition)).status_code
        await patch(client, {"id": ids[0]}, statuses=None)


async def test_each_field_is_changed_for_itself(service: Service) -> None:
    client = await partner(service)
    expected = await created(client, statuses=["pending"])
    del expected["secret"]
    other = "https://127.0.0.2/other"
    changes: list[dict[str, Any]] = [{"url": other}, {"statuses": ["cancelled", "pending"]}]
    for fields in (*changes, {"state": "paused"}, {"state": "active"}):
        response = await patch(client, expected, **fields)
        expected |= fields
        if "statuses" in fields:
            expected["statuses"] = ["pending", "cancelled"]
        assert (200, "no-store", expected) == (response.status_code, response.headers["cache-control"], response.json())
        assert expected == await shown(client, expected)
    del expected["statuses"]
    assert expected == (await patch(client, expected, statuses=None)).json()
    entries = await audited(service)
    assert ["webhook.create", *["webhook.edit"] * 5] == [action for action, _ in entries]
    assert expected == (await patch(client, expected, state="active", url=other)).json()
    assert entries == await audited(service)  # nothing has changed


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a URL that is null": ({"url": None}, "'url'"),
    "a URL that is a number": ({"url": 1}, "'url'"),
    "a URL without TLS": ({"url": "http://192.88.99.1/"}, "URL is refused"),
    "a private address": ({"url": "https://10.0.0.1/"}, "not public"),
    "an API key": ({"url": "https://127.0.0.1/?key=pso_live_" + "a" * 33}, "API key"),
    "an unknown status": ({"statuses": ["pending", "lost"]}, "'statuses'"),
    "a status that is a list": ({"statuses": [["pending"]]}, "'statuses'"),
    "a state that only the service sets": ({"state": "stopped"}, "active, paused"),
    "an empty position": ({"after": ""}, "'after'"),
    "a position that is a number": ({"after": 7}, "'after'"),
    "an unknown field": ({"secret": "x"}, "'secret'"),
}


@embedded
@pytest.mark.parametrize(("fields", "named"), REFUSED.values(), ids=REFUSED)
async def test_a_malformed_field_is_refused_and_named(service: Service, fields: dict[str, Any], named: str) -> None:
    client = await partner(service)
    webhook = await created(client)
    entries = await audited(service)
    for response in (await create(client, **fields), await patch(client, webhook, **fields)):
        assert (400, "invalid_body") == code(response)
        assert named in response.json()["message"]
    assert entries == await audited(service)
    assert 1 == len((await client.get(WEBHOOKS)).json()["data"])


@embedded
async def test_a_malformed_body_is_refused(service: Service) -> None:
    client = await partner(service)
    webhook = await created(client)
    kind = {"Content-Type": "application/json"}
    for method, path in (("POST", WEBHOOKS), ("PATCH", f"{WEBHOOKS}/{webhook['id']}")):
        for body in (b"", b"[]", b'{"url": "https://127.0.0.1/", "url": "https://127.0.0.1/"}'):
            assert (400, "invalid_body") == code(await client.send(method, path, content=body, headers=kind))
        assert (415, "unsupported_media_type") == code(await client.send(method, path, content=b"{}"))
    assert "lacks the field 'url'" in (await client.send("POST", WEBHOOKS, json={})).json()["message"]
    for fields in ({"state": None}, {"after": None}):
        assert (400, "invalid_body") == code(await patch(client, webhook, **fields))  # nothing that could be removed
    assert (400, "invalid_parameter") == code(await client.get(WEBHOOKS, limit=1))
    assert (400, "invalid_parameter") == code(await client.send("DELETE", f"{WEBHOOKS}/{webhook['id']}?x=1"))


async def test_which_orders_are_sent_and_where_is_decided_only_with_a_key_that_may_read_them(service: Service) -> None:
    client = await partner(service)
    webhook = await created(client)
    key = await service.key(client.account, scopes=frozenset({Scope.WEBHOOKS_MANAGE}))
    manager = replace(client, headers=bearer(key))
    for fields in ({"url": NOWHERE}, {"statuses": None}, {"after": "beginning"}, {"state": "active", "after": "now"}):
        for refused in (await patch(manager, webhook, **fields), await create(manager, **fields)):
            assert (403, "insufficient_scope") == code(refused)
            assert 'scope="orders:read"' in refused.headers["www-authenticate"]
    for state in ("paused", "active"):
        assert state == (await patch(manager, webhook, state=state)).json()["state"]


async def test_a_position_of_others_is_refused(service: Service) -> None:
    every, own, another = await partner(service, VisibleOrders.ALL), await partner(service), await partner(service)
    tokens = [(await each.get(CHANGES)).json()["next"] for each in (every, own, another)]
    for client, mine in ((every, 0), (own, 1), (another, 2)):
        webhook = await created(client, after=tokens[mine])
        for number, token in enumerate(tokens):
            expected = 410 if number != mine else 200
            assert expected == (await patch(client, webhook, after=token)).status_code
            assert (201 if number == mine else 410) == (await create(client, after=token)).status_code
        altered = tokens[mine][:-1] + ("A" if tokens[mine][-1] != "A" else "B")
        for after in (altered, "x", "Now"):
            assert (400, "invalid_cursor") == code(await create(client, after=after))
            assert (400, "invalid_cursor") == code(await patch(client, webhook, after=after))
    own_webhook = await created(own)
    await set_orders(service, own.account, VisibleOrders.ALL)
    await service.background_round()
    assert (410, "changes_reset") == code(await patch(own, own_webhook, after=tokens[1]))
    assert 200 == (await patch(own, own_webhook, after="now")).status_code


async def test_what_a_refused_position_says_to_do_skips_no_order(service: Service) -> None:
    client = await partner(service)
    webhook = await created(client)
    of_all = (await (await partner(service, VisibleOrders.ALL)).get(CHANGES)).json()["next"]
    for after in ("x", of_all):
        for response in (await create(client, after=after), await patch(client, webhook, after=after)):
            assert "a webhook with 'beginning'" in response.json()["message"]  # without `after` it begins now


async def test_a_deleted_webhook_is_gone(service: Service) -> None:
    client = await partner(service)
    webhook, other = await created(client), await created(client)
    response = await client.send("DELETE", f"{WEBHOOKS}/{webhook['id']}")
    assert (204, b"") == (response.status_code, response.content)
    await not_found(client, webhook["id"])
    assert [other["id"]] == [each["id"] for each in (await client.get(WEBHOOKS)).json()["data"]]
    assert "webhook.delete" == (await audited(service))[-1][0]


async def not_found(client: Partner, webhook_id: str) -> list[str]:
    """Check that no operation finds the webhook; return the responses."""
    texts = []
    for method, end in OF_ONE:
        body = {"json": {"state": "paused"}} if method == "PATCH" else {}
        response = await client.send(method, f"{WEBHOOKS}/{webhook_id}{end}", **body)
        assert 404 == response.status_code, (method, end)
        assert method == "HEAD" or (404, "webhook_not_found") == code(response)
        texts.append(response.text.replace(webhook_id, "id"))
    return texts


STRANGE = ["%00", "%FF", "wh_%C3%A9", "'", "%0d%0aX:%201", "pso_live_" + "a" * 33, "w" * 5_000, "%25", "%E2%80%AE"]


@pytest.mark.parametrize("webhook_id", STRANGE)
async def test_what_is_not_an_identifier_is_not_found_nor_repeated(service: Service, webhook_id: str) -> None:
    client = await partner(service)
    for text in await not_found(client, webhook_id):
        assert len(text) < 200
        assert "aaaa" not in text


async def test_accounts_never_see_webhooks_of_others(service: Service) -> None:
    owner, other = await partner(service, VisibleOrders.ALL), await partner(service, VisibleOrders.ALL)
    webhook = await created(owner)
    entries = await audited(service)
    assert await not_found(other, webhook["id"]) == await not_found(other, MISSING)
    assert {"data": []} == (await other.get(WEBHOOKS)).json()
    assert entries == await audited(service)
    assert "active" == (await shown(owner, webhook))["state"]


async def test_an_account_has_at_most_twenty_webhooks_also_if_they_are_created_at_once(service: Service) -> None:
    client, other = await partner(service), await partner(service)
    responses = await asyncio.gather(*(create(client) for _ in range(25)))
    assert [201] * 20 + [409] * 5 == sorted(response.status_code for response in responses)
    response = await create(client)
    assert ((409, "too_many_webhooks"), True) == (code(response), "There are 20 webhooks" in response.text)
    await created(other)


async def test_a_store_has_at_most_so_many_webhooks(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_WEBHOOKS", 3)
    clients = [await partner(service) for _ in range(4)]
    webhooks = [await created(client) for client in clients[:3]]
    response = await create(clients[3])
    assert ((409, "too_many_webhooks"), True) == (code(response), "There are 3 webhooks" in response.text)
    await clients[0].send("DELETE", f"{WEBHOOKS}/{webhooks[0]['id']}")
    await created(clients[3])


async def test_where_webhooks_are_off_each_operation_says_so_as_a_refusal_that_no_program_retries(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(deployment, PETSTORE_WEBHOOK_SECRET="") as service:
        client = await partner(service)
        for method, path in [*OF_ALL, *((method, f"/{MISSING}{end}") for method, end in OF_ONE)]:
            response = await client.send(method, f"{WEBHOOKS}{path}")
            assert 403 == response.status_code
            assert method == "HEAD" or (403, "webhooks_disabled") == code(response)
            assert set() == {"retry-after", "www-authenticate"} & response.headers.keys()
        assert "unavailable" not in capsys.readouterr().err  # it is not an outage
        assert 200 == (await client.get(CHANGES)).status_code
        without = replace(client, headers=bearer(await service.key(client.account)))
        assert (403, "insufficient_scope") == code(await without.get(WEBHOOKS))


async def test_neither_secrets_nor_queries_of_urls_are_logged_or_audited(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "password-of-the-receiver"
    more = {"PETSTORE_LOG_LEVEL": "debug", "PETSTORE_ACCESS_LOG": "all"}
    async with running(deployment, **SETTINGS, **more) as service, receiving() as receiver:
        client = await partner(service)
        webhook = await created(client, url=f"{receiver.url}?{query}")
        secrets = [webhook["secret"]]
        order_id = await client.placed("1")
        await deliver(service)
        assert [order_id] == receiver.orders
        await act(client, webhook, "ping")
        secrets.append((await act(client, webhook, "rotate")).json()["secret"])
        assert 200 == (await patch(client, webhook, url=f"{NOWHERE}?{query}")).status_code
        await client.placed("2")
        await deliver(service)
        assert "status" not in (await shown(client, webhook))["attempts"][-1]
        await act(client, webhook, "ping")
        refused = [await create(client, url=f"https://10.0.0.1/?{query}")]
        refused.append(await patch(client, webhook, url=f"ftp://127.0.0.1/?{query}"))
        await client.send("DELETE", f"{WEBHOOKS}/{webhook['id']}")
        entries = await audited(service)
    actions = ["create", "ping", "rotate", "edit", "ping", "delete"]
    assert [f"webhook.{action}" for action in actions] == [action for action, _ in entries]
    logged = capsys.readouterr().err
    assert "v2.createWebhook" in logged
    assert "delivery attempt failed" in logged
    hidden = [query, SETTINGS["PETSTORE_WEBHOOK_SECRET"], *(secret.removeprefix("whsec_") for secret in secrets)]
    for text in (logged, *(recorded for _, recorded in entries), *(response.text for response in refused)):
        assert [] == [secret for secret in hidden if secret in text]
