"""The gate: the order of checks, errors, headers, callers without a key, bans, deprecation (D1–D4, D9, D13–D16).

Every exchange here is held to the contract by the client itself; the tests state what the contract cannot.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import AsyncMock
from urllib.parse import urljoin

import httpx2
import pytest

from petstore_server.domain.accounts import Limits, Plan, suspend
from petstore_server.domain.errors import ServiceUnavailable, StoreUnusable
from petstore_server.domain.keys import DEFAULT_SCOPES, Environment, Scope, revoke, unban
from petstore_server.domain.orders import Order, Status
from petstore_server.domain.pets import Pet
from petstore_server.domain.timestamps import DAY
from petstore_server.runtime import application
from testing import wire
from testing.clock import START
from testing.deployment import Deployment
from testing.service import Service, bearer, code, embedded, limits, running

ORDERS = "/v1/store/orders"


pytestmark = pytest.mark.usefixtures("each_deployment")


@embedded
@pytest.mark.parametrize("path", [ORDERS, "/v2/store/orders?limit=1000", "/v2/store/orders/1", "/openapi.yaml"])
async def test_the_etag_of_either_form_is_recognised_as_proxies_that_compress_send_it(
    service: Service, path: str
) -> None:
    await service.orders(*[Order(number) for number in range(1, 100)])
    headers = bearer(await service.key())

    async def get(encoding: str, **more: str) -> httpx2.Response:
        return await service.client.get(path, headers={**headers, "Accept-Encoding": encoding, **more})

    plain = (await get("identity")).headers["etag"].removesuffix('"')
    forms = [plain + suffix for suffix in ('"', '-gzip"', '-br"', '-gzip-gzip"')]
    others = ['"other"', f'{plain}0"', plain.replace('"', '"0') + '"', f"{plain[:-1]}"]
    for encoding in ("identity", "gzip"):
        for form in forms:
            for sent in (form, f"W/{form}", f'"other", W/{form}, "more"'):
                unchanged = await get(encoding, **{"If-None-Match": sent})
                assert (304, b"") == (unchanged.status_code, unchanged.content), sent
        for sent in others:
            assert 200 == (await get(encoding, **{"If-None-Match": sent})).status_code, sent


@embedded
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_contract_is_also_a_document_below_its_version_without_a_key(service: Service, version: str) -> None:
    own = {"v1": "openapi", "v2": "openapi-v2"}[version]
    for kind in ("json", "yaml"):
        below = await service.client.get(f"/{version}/openapi.{kind}")
        outside = await service.client.get(f"/{own}.{kind}")
        assert (200, outside.content) == (below.status_code, below.content)
        assert outside.headers["etag"] == below.headers["etag"]
        assert "x-ratelimit-limit" not in below.headers
    head = await service.client.head(f"/{version}/openapi.yaml")
    assert (200, b"") == (head.status_code, head.content)
    assert (405, "method_not_allowed") == code(await service.client.post(f"/{version}/openapi.yaml"))
    for other in ("openapi.yaml/", "openapi.yml", "store/openapi.yaml"):  # no redirects, and nothing without a key
        assert (401, "missing_api_key") == code(await service.client.get(f"/{version}/{other}"))


@embedded
async def test_gzip_is_sent_where_it_is_accepted_and_head_tells_the_length(service: Service) -> None:
    await service.orders(*[Order(number) for number in range(5000)])
    headers = bearer(await service.key())
    lists = [
        await service.client.get(ORDERS, headers={**headers, "Accept-Encoding": accepted})
        for accepted in ("identity", "br, gzip;q=0.8", "gzip;q=0", "gzip, " * 50 + "br")
    ]
    assert [None, "gzip", None, None] == [response.headers.get("content-encoding") for response in lists]
    assert 1 == len({response.content for response in lists})
    head = await service.client.head(ORDERS, headers={**headers, "Accept-Encoding": "identity"})
    assert (str(len(lists[0].content)), b"") == (head.headers["content-length"], head.content)


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_cancel_is_answered_by_what_became_of_the_order(service: Service, version: str) -> None:

    await service.orders(Order(-5), Order(2, status=Status.SHIPPED))
    headers = bearer(await service.key(), **({"If-Match": '"x"'} if version == "v1" else {}))  # is ignored
    responses = []
    for order_id in ("-5", "-5", "2", "3", "%2D5", "007", "%201", "1%2F2", "9223372036854775808", "-0"):
        response = await service.client.delete(f"/{version}/store/orders/{order_id}", headers=headers)
        responses.append((204, "") if response.status_code == 204 else code(response))
    assert [
        (204, ""),
        (409, "order_already_cancelled"),
        (409, "order_already_shipped"),
        (404, "order_not_found"),
        (409, "order_already_cancelled"),
        *[(404, "invalid_order_id")] * 5,
    ] == responses


async def raw_exchange(service: Service, request: bytes) -> wire.Response:
    """The one response on a new connection."""
    [response] = wire.responses(await wire.send(service.transport.port, request))
    return response


MALFORMED = [
    (b"GARBAGE\r\n\r\n", 400, "bad_request"),
    (b"GET / HTTP/2.0\r\n\r\n", 400, "bad_request"),
    (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501, "bad_request"),
    (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431, "headers_too_large"),
    (b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 102 + b"\r\n", 431, "headers_too_large"),
    (b"GET /" + b"x" * 70_000, 414, "uri_too_long"),
]


@embedded
async def test_what_the_parser_refuses_shows_the_window_of_the_peers_address_and_charges_nothing(
    service: Service,
) -> None:
    await service.client.get(ORDERS)  # is charged
    for request, status, expected in MALFORMED:
        response = await raw_exchange(service, request)
        headers = response.headers
        assert (status, expected, status) == (response.status, response.code, json.loads(response.body)["status"])
        assert ("60", "59") == (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"])
        assert ('"address";q=60;w=60', '"address";r=59;t=60') == (headers["ratelimit-policy"], headers["ratelimit"])
        assert str(int(START) + 60) == headers["x-ratelimit-reset"]
        assert headers["x-request-id"].startswith("rrrrrr-")
        assert ("close", False) == (headers["connection"], "retry-after" in headers)
    for _ in range(60):
        await service.client.get(ORDERS)
    headers = (await raw_exchange(service, b"GARBAGE\r\n\r\n")).headers
    assert ("0", False) == (headers["x-ratelimit-remaining"], "retry-after" in headers)


@embedded
@pytest.mark.settings(PETSTORE_MAX_CONNECTIONS="1")
async def test_a_connection_over_the_maximum_shows_the_window_of_its_address(service: Service) -> None:

    _, kept = await asyncio.open_connection("127.0.0.1", service.transport.port)
    response = await raw_exchange(service, wire.head("GET", "/"))
    headers = response.headers
    assert (503, "service_unavailable", "1") == (response.status, response.code, headers["retry-after"])
    assert ("60", "60") == (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"])
    assert '"address";r=60;t=60' == headers["ratelimit"]
    kept.close()


UNKNOWN = ["/v1", "/v1/", "/v1/store", f"{ORDERS}/1/2", f"{ORDERS}/", "/v1//store/orders", "/v1/nothing"]
UNKNOWN += ["/v1/store%2Forders", "/v1/pets", "/v1/%FF%FE", "/v1/store/orders%00"]


@embedded
async def test_an_unknown_path_is_401_without_a_key_and_404_with_one(service: Service) -> None:
    key = await service.key()
    for path in UNKNOWN:
        assert (401, "missing_api_key") == code(await service.client.get(path)), path
        assert (404, "not_found") == code(await service.client.get(path, headers=bearer(key))), path


WRONG_METHODS = {
    ("POST", ORDERS): "GET, HEAD",
    ("OPTIONS", ORDERS): "GET, HEAD",
    ("TRACE", ORDERS): "GET, HEAD",
    ("PROPFIND", ORDERS): "GET, HEAD",
    ("QUERY", ORDERS): "GET, HEAD",
    ("GET", f"{ORDERS}/1"): "DELETE",
    ("HEAD", f"{ORDERS}/1"): "DELETE",
    ("PUT", f"{ORDERS}/no-number"): "DELETE",
    ("DELETE", "/v1/pets/1"): "GET, HEAD",
}


@embedded
async def test_a_wrong_method_is_405_and_allow_names_the_right_ones(service: Service) -> None:
    headers = bearer(await service.key())
    for (method, path), allow in WRONG_METHODS.items():
        response = await service.client.request(method, path, headers=headers)
        assert (405, allow) == (response.status_code, response.headers["allow"]), (method, path)


@embedded
async def test_there_is_no_v3_and_errors_outside_of_the_api_carry_no_limits(service: Service) -> None:
    for path in ("/v3", "/v3/store/orders", "/livez", "/metrics", "//v1/store/orders", "/v1%2Fstore/orders"):
        assert (404, "not_found") == code(await service.client.get(path))
    assert (405, "method_not_allowed") == code(await service.client.post("/openapi.json"))


@embedded
@pytest.mark.parametrize("document", ["/openapi.json", "/v1/openapi.json", "/v2/openapi.yaml"])
async def test_requests_outside_v1_are_limited_by_address_and_apart_from_the_api(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, document: str
) -> None:
    monkeypatch.setattr(application, "MAX_DOCUMENT_REQUESTS", 9)

    async with running(deployment, PETSTORE_TRUSTED_PROXIES="127.0.0.0/8") as service:
        key = await service.key()
        for number in range(9):
            path = (document, "/", "/nothing")[number % 3]
            assert 429 != (await service.client.get(path)).status_code
        refused = await service.client.get(document)
        assert (429, "rate_limit_exceeded") == code(refused)
        assert "60" == refused.headers["retry-after"]
        assert 200 == (await service.client.get(ORDERS, headers=bearer(key))).status_code
        assert 59 == limits(await service.client.get(ORDERS))[1]
        other = {"X-Forwarded-For": "192.0.2.1"}
        assert 200 == (await service.client.get(document, headers=other)).status_code
        service.clock.now += 60
        assert 200 == (await service.client.get(document)).status_code


@embedded
async def test_valid_missing_and_invalid_bearer_keys_are_distinguished(service: Service) -> None:
    key = await service.key()
    for value in (f"bearer {key}", f"BEARER   {key}"):
        assert 200 == (await service.client.get(ORDERS, headers={"Authorization": value})).status_code
    for value in ("", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", f"Token {key}", key):
        assert (401, "missing_api_key") == code(await service.client.get(ORDERS, headers={"Authorization": value}))
    for value in (f"Bearer {key[:-1]}", f"Bearer {key} {key}", "Bearer x", f"Bearer {key.upper()}", "Bearer é"):
        response = await service.client.get(ORDERS, headers=[(b"Authorization", value.encode())])
        assert (401, "invalid_api_key") == code(response)
    twice = [("Authorization", f"Bearer {key}"), ("Authorization", f"Bearer {key}")]
    assert (401, "invalid_api_key") == code(await service.client.get(ORDERS, headers=twice))


@embedded
async def test_keys_that_do_not_work_get_one_response_and_known_ones_are_logged_within_the_limit_of_the_address(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(deployment) as service:
        store = service.backend.store
        revoked, revoked_id = await service.key_and_id()
        await store.keys.change(revoked_id, revoke(service.actor.at), service.actor)
        account = await service.account()
        suspended, suspended_id = await service.key_and_id(account)
        await store.accounts.change(account, suspend(service.actor.at), service.actor)
        expired, expired_id = await service.key_and_id(expires_at=START)
        foreign = await service.key(environment=Environment.STAGING)
        responses = set()
        for number, key in enumerate(("pso_live_" + "0" * 33, foreign, revoked, suspended, *[expired] * 60)):
            response = await service.client.get(ORDERS, headers={**bearer(key), "X-Request-Id": "mine"})
            assert (401 if number < 60 else 429) == response.status_code
            responses.add(response.content)
        of = {each.id: each.account for each in await store.keys.list()}
        expected = [
            (revoked_id, of[revoked_id], "revoked", "mine"),
            (suspended_id, account, "suspended", "mine"),
            *[(expired_id, of[expired_id], "expired", "mine")] * 56,
        ]
    assert 2 == len(responses), "one of 401, one of 429"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    seen = [line for line in lines if line["event"] == "key refused"]
    assert expected == [(line["key"], line["account"], line["state"], line["request_id"]) for line in seen]
    assert "pso_" not in json.dumps(lines)


async def test_every_admitted_request_is_charged_and_a_refused_one_is_not(service: Service) -> None:

    headers = bearer(await service.key(await service.account(Plan.ENTERPRISE, Limits(7, 100))))
    requests = [("GET", ORDERS, 200), ("HEAD", ORDERS, 200), ("DELETE", f"{ORDERS}/1", 404)]
    requests += [("DELETE", f"{ORDERS}/x", 404), ("POST", ORDERS, 405), ("GET", "/v1/nothing", 404)]
    requests += [("GET", "/v1/pets/5", 404), ("GET", ORDERS, 429), ("GET", ORDERS, 429)]
    for (method, path, status), remaining in zip(requests, [*range(6, -1, -1), 0, 0], strict=True):
        response = await service.client.request(method, path, headers=headers)
        assert (status, remaining) == (response.status_code, limits(response)[1])


@embedded
async def test_a_429_names_the_time_from_which_the_next_request_is_admitted(service: Service) -> None:
    headers = bearer(await service.key())
    for _ in range(60):
        await service.client.get(ORDERS, headers=headers)
    refused = await service.client.get(ORDERS, headers=headers)
    assert (429, "rate_limit_exceeded") == code(refused)
    assert ((60, 0, int(START) + 60), "60") == (limits(refused), refused.headers["retry-after"])
    assert '"minute";r=0;t=60, "day";r=940;t=86400' == refused.headers["ratelimit"]
    assert '"minute";q=60;w=60, "day";q=1000;w=86400' == refused.headers["ratelimit-policy"]
    service.clock.now += int(refused.headers["retry-after"])
    assert 200 == (await service.client.get(ORDERS, headers=headers)).status_code


@embedded
async def test_t_counts_down_to_a_whole_second_and_never_promises_an_earlier_one(service: Service) -> None:
    headers = bearer(await service.key())
    service.clock.now = int(START)
    await service.client.get(ORDERS, headers=headers)
    for remaining, fraction in ((58, 0.0), (57, 0.25), (56, 0.75)):
        service.clock.now = int(START) + 1 + fraction
        response = await service.client.get(ORDERS, headers=headers)
        expected = f'"minute";r={remaining};t=59, "day";r={remaining + 940};t=86399'
        assert expected == response.headers["ratelimit"]


async def test_a_key_that_goes_on_is_banned_and_every_path_says_so(service: Service) -> None:
    key, key_id = await service.key_and_id()
    for _ in range(61):
        await service.client.get(ORDERS, headers=bearer(key))
    service.clock.now += 3
    for _ in range(19):
        assert (429, "rate_limit_exceeded") == code(await service.client.get(ORDERS, headers=bearer(key)))
    for path in (ORDERS, "/v1/nothing"):
        banned = await service.client.get(path, headers=bearer(key))
        assert (429, "api_key_banned") == code(banned)
        assert ((60, 0, int(START) + 123), "120") == (limits(banned), banned.headers["retry-after"])
        assert '"minute";r=0;t=57, "day";r=940;t=86397, "ban";r=0;t=120' == banned.headers["ratelimit"]
    await service.background_round()
    await service.backend.store.keys.change(key_id, unban(service.actor.at), service.actor)
    await service.background_round()
    service.clock.now += 60
    assert 200 == (await service.client.get(ORDERS, headers=bearer(key))).status_code


@embedded
@pytest.mark.parametrize(("named", "other"), [("X-Forwarded-For", "Forwarded"), ("Forwarded", "X-Forwarded-For")])
async def test_the_header_that_is_named_says_the_client_address_if_the_peer_is_trusted(
    deployment: Deployment, named: str, other: str
) -> None:
    values = {"X-Forwarded-For": "192.0.2.1, 127.0.0.7", "Forwarded": "for=192.0.2.2, for=127.0.0.7"}
    headers = [values, {named: values[named]}, {other: values[other]}, {}]

    async def remaining(**trusted: str) -> list[int]:
        async with running(deployment, PETSTORE_FORWARDED_HEADER=named, **trusted) as service:
            return [limits(await service.client.get(ORDERS, headers=each))[1] for each in headers]

    assert [59, 58, 57, 56] == await remaining()  # an untrusted peer's word counts for nothing
    assert [59, 58, 59, 58] == await remaining(PETSTORE_TRUSTED_PROXIES="127.0.0.0/8")


@embedded
async def test_the_deprecated_operation_says_so_until_its_sunset_and_is_gone_after(service: Service) -> None:
    actor = service.actor
    await service.backend.store.pets.import_batch([Pet(3, "Echo", "budgerigar"), Pet(4)], "test", actor)
    headers = bearer(await service.key())
    pet = await service.client.get("/v1/pets/3", headers=headers)
    assert {"id": 3, "name": "Echo", "tag": "budgerigar"} == pet.json()
    assert {"id": 4} == (await service.client.get("/v1/pets/4", headers=headers)).json()
    assert ("@1793491200", "Wed, 01 Dec 2027 00:00:00 GMT") == (pet.headers["deprecation"], pet.headers["sunset"])
    for pet_id in ("5", "abc", "9223372036854775808"):
        assert (404, "pet_not_found") == code(await service.client.get(f"/v1/pets/{pet_id}", headers=headers))
    assert 401 == (await service.client.get("/v1/pets/3")).status_code
    refused = [await service.client.get("/v1/pets/3", headers=headers) for _ in range(60)]
    assert 429 == refused[-1].status_code
    service.clock.now = 1_827_619_200.0
    assert (410, "gone") == code(await service.client.get("/v1/pets/3", headers=headers))


@embedded
@pytest.mark.parametrize("prefix", ["", "/api", "/a/b"])
async def test_every_link_leads_below_the_base_address_that_was_asked(service: Service, prefix: str) -> None:
    """A client resolves it as RFC 3986 says; a proxy takes the prefix off, and the service does not know it."""
    base = f"https://store.example{prefix}"

    await service.orders(Order(1), Order(2))
    await service.backend.store.pets.import_batch([Pet(1, "Echo", "budgerigar")], "test", service.actor)
    headers = bearer(await service.key(scopes=DEFAULT_SCOPES | {Scope.ORDERS_WRITE}))
    pages, pet = "/v2/store/orders?petId=3&limit=1", "/v1/pets/1"
    placed = []
    for key in ("a", "b"):
        sent, order = {**headers, "Idempotency-Key": key}, {"petId": 3, "quantity": 1}
        placed.append(await service.client.post("/v2/store/orders", headers=sent, json=order))
    page = await service.client.get(pages, headers=headers)
    links = [("/v2/store/orders", each.headers["location"]) for each in placed]
    links.append((pages, page.links["next"]["url"]))
    links += [(pet, link["url"]) for link in (await service.client.get(pet, headers=headers)).links.values()]
    assert 5 == len(links)
    for asked, link in links:
        address = urljoin(base + asked, link)
        assert address.startswith(f"{base}/")
        response = await service.client.get(address.removeprefix(base), headers=headers)
        assert 200 == response.status_code
        if asked == pages:
            assert [4] == [order["id"] for order in response.json()["data"]]


@embedded
async def test_what_is_oversized_or_lacks_its_host_is_refused_after_admission(service: Service) -> None:

    headers = bearer(await service.key())
    client = service.client
    responses = [
        await client.get(f"{ORDERS}?{'x' * 8192}", headers=headers),
        await client.get(ORDERS, headers={**headers, "X-Large": "x" * 33_000}),
        await client.request("DELETE", f"{ORDERS}/1", headers=headers, content=b"x" * 65_537),
        await client.get(ORDERS, headers=[("Host", "a"), ("Host", "b"), *headers.items()]),
        await client.request("DELETE", f"{ORDERS}/1", headers=headers, content=b"x" * 65_536),
    ]
    assert [
        (414, "uri_too_long", 59),
        (431, "headers_too_large", 58),
        (413, "payload_too_large", 57),
        (400, "bad_request", 56),
        (404, "order_not_found", 55),
    ] == [(*code(response), limits(response)[1]) for response in responses]

    for path in (f"{ORDERS}/1", "/docs"):  # where only the body shows it
        lines = [f"Authorization: {headers['Authorization']}", "Transfer-Encoding: chunked", "Connection: close"]
        body = b"10001\r\n" + b"x" * 65_537
        assert "payload_too_large" == (await raw_exchange(service, wire.head("DELETE", path, *lines) + body)).code


@contextmanager
def broken_orders(service: Service, error: Exception) -> Iterator[None]:
    """The store's orders fail."""
    store = service.backend.store
    with pytest.MonkeyPatch.context() as patch:
        for part, name in ((store.listing, "current"), (store.orders, "change"), (store.orders, "find")):
            patch.setattr(part, name, AsyncMock(side_effect=error))
        yield


@embedded
@pytest.mark.parametrize("fault", [RuntimeError("SELECT secret"), StoreUnusable("SELECT secret")], ids=repr)
async def test_a_fault_of_ours_is_500_with_limits_and_tells_nothing_and_no_key_reaches_the_log(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], fault: Exception
) -> None:
    async with running(deployment, PETSTORE_LOG_LEVEL="debug") as service:
        account = await service.account()
        key, key_id = await service.key_and_id(account)
        headers = bearer(key, **{"X-Request-Id": "mine"})
        with broken_orders(service, fault):
            response = await service.client.get(f"{ORDERS}?key={key}", headers=headers)
        await service.client.get(f"/v1/{key}", headers=headers)
    assert ((500, "internal_error"), 59) == (code(response), limits(response)[1])
    assert b"secret" not in response.content
    logged = capsys.readouterr()
    assert key[9:] not in logged.err + logged.out
    [line] = [json.loads(line) for line in logged.err.splitlines() if "SELECT secret" in line]
    context = {"request_id": "mine", "operation": "listOrders", "account": account, "key": key_id}
    assert {"event": "request failed", **context}.items() <= line.items()


@embedded
async def test_a_store_that_is_gone_is_503_with_the_accounts_windows_or_the_addresss(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = ServiceUnavailable("the disk is gone")
    known, unknown = await service.key(), await service.key()
    await service.client.get(ORDERS, headers=bearer(known))
    monkeypatch.setattr(service.backend.store.keys, "principal", AsyncMock(side_effect=gone))
    with broken_orders(service, gone):
        for key, policy in ((known, "minute"), (unknown, "address")):
            response = await service.client.get(ORDERS, headers=bearer(key))
            assert ((503, "service_unavailable"), "1") == (code(response), response.headers["retry-after"])
            assert response.headers["ratelimit-policy"].startswith(f'"{policy}"')
        for _ in range(61):  # never 429 for a key that may be valid
            assert 503 == (await service.client.get(ORDERS, headers=bearer(unknown))).status_code
        assert (401, "missing_api_key") == code(await service.client.get(ORDERS))
        assert (401, "invalid_api_key") == code(await service.client.get(ORDERS, headers=bearer("pso_live_x")))
        service.clock.now += 61
        lapsed = await service.client.get(ORDERS, headers=bearer(known))
        assert (503, '"address";q=60;w=60') == (lapsed.status_code, lapsed.headers["ratelimit-policy"])


async def test_the_admin_port_tells_liveness_readiness_and_metrics(service: Service) -> None:
    await service.client.get(ORDERS, headers=bearer(await service.key()))
    await service.client.get(ORDERS)
    limited = bearer(await service.key(await service.account(Plan.ENTERPRISE, Limits(1, 1))))
    for method, path in (("DELETE", f"{ORDERS}/%37"), ("DELETE", f"{ORDERS}/7"), ("GET", "/v2/usage"), ("PUT", ORDERS)):
        await service.client.request(method, path, headers=limited)
    await service.background_round()
    transport = httpx2.ASGITransport(app=service.application.admin)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as admin:
        assert {"status": "ok"} == (await admin.get("/livez")).json()
        assert (200, {"status": "ok"}) == ((ready := await admin.get("/readyz")).status_code, ready.json())
        metrics = (await admin.get("/metrics")).text
        for line in (
            'petstore_requests_total{operation="listOrders",status="200"} 1.0',
            'petstore_requests_total{operation="none",status="401"} 1.0',
            'petstore_requests_total{operation="cancelOrder",status="404"} 1.0',
            'petstore_requests_total{operation="cancelOrder",status="429"} 1.0',
            'petstore_requests_total{operation="v2.getUsage",status="429"} 1.0',
            'petstore_requests_total{operation="none",status="429"} 1.0',
            'petstore_request_duration_seconds_count{operation="cancelOrder"} 1.0',  # without refusals
            'petstore_accounts_using{operation="listOrders"} 1.0',
            'petstore_accounts_using{operation="v1.*"} 2.0',
            'petstore_accounts_using{operation="v2.*"} 1.0',
            'petstore_accounts_using{operation="getPet"} 0.0',
            'petstore_limit_decisions_total{outcome="admitted",plan="free",window="none"} 1.0',
            'petstore_limit_decisions_total{outcome="admitted",plan="none",window="none"} 1.0',
            "petstore_list_rebuild_duration_seconds_count 1.0",
            "petstore_bans_total 0.0",
            "petstore_ready 1.0",
        ):
            assert line in metrics.splitlines()
        for days, using in ((29.9, 1.0), (30.1, 0.0)):
            service.clock.now = START + days * DAY
            assert (
                f'\npetstore_accounts_using{{operation="listOrders"}} {using}\n' in (await admin.get("/metrics")).text
            )
        service.application.gate.draining = True
        draining = await admin.get("/readyz")
        assert (503, "unavailable") == (draining.status_code, draining.json()["status"])
        assert 200 == (await admin.get("/livez")).status_code
