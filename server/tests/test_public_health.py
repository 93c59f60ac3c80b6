"""`/healthz` on the public port, for load balancers: what it returns, and that nothing counts or records it."""

import json

import httpx2
import pytest

from testing import wire
from testing.deployment import Deployment
from testing.service import Service, code, embedded, running

pytestmark = pytest.mark.usefixtures("each_deployment")


@embedded
async def test_a_load_balancer_needs_no_key_and_learns_nothing_but_that_requests_are_accepted(service: Service) -> None:
    healthy = await service.client.get("/healthz")
    assert (200, b"ok\n") == (healthy.status_code, healthy.content)
    assert {"content-type", "content-length", "cache-control", "date", "connection", "x-request-id"} == {
        *healthy.headers
    }
    assert "no-store" == healthy.headers["cache-control"]
    head = await service.client.head("/healthz?from=balancer")
    assert (200, "3", b"") == (head.status_code, head.headers["content-length"], head.content)
    assert (405, "method_not_allowed") == code(await service.client.post("/healthz", content=b"{}"))
    for other in ("/healthz/", "/Healthz", "/docs/healthz"):
        assert 404 == (await service.client.get(other)).status_code


@embedded
async def test_http_1_0_needs_no_host_and_what_is_malformed_is_refused(service: Service) -> None:
    port = service.transport.port
    [old] = wire.responses(await wire.send(port, b"GET /healthz HTTP/1.0\r\n\r\n"))
    assert (200, b"ok\n") == (old.status, old.body)
    [without] = wire.responses(await wire.send(port, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"))
    assert (400, "bad_request") == (without.status, without.code)


@embedded
async def test_it_is_503_from_the_beginning_of_a_drain(service: Service) -> None:
    service.application.drain()
    drained = await service.client.get("/healthz")
    assert ((503, "service_unavailable"), "1") == (code(drained), drained.headers["retry-after"])
    assert "drain" not in drained.text


async def test_it_is_neither_counted_nor_limited_nor_logged(
    each_deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(each_deployment, PETSTORE_ACCESS_LOG="all") as service:
        for _ in range(610):  # more than there are requests for documents
            assert 200 == (await service.client.get("/healthz")).status_code
        assert 200 == (await service.client.get("/openapi.json")).status_code
        assert 401 == (await service.client.get("/v1/healthz")).status_code
        transport = httpx2.ASGITransport(app=service.application.admin)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as admin:
            metrics = (await admin.get("/metrics")).text
    counted = [line for line in metrics.splitlines() if line.startswith("petstore_requests_total{")]
    assert [
        'petstore_requests_total{operation="none",status="200"} 1.0',
        'petstore_requests_total{operation="none",status="401"} 1.0',
    ] == sorted(counted)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert ["/openapi.json", "/v1/healthz"] == [line["path"] for line in lines if "path" in line]
