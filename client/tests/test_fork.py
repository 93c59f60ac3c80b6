"""Processes: a forked child has connections and a gate of its own, and responses cannot be confused."""

import asyncio
import gc
import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from petstore_client import (
    APIConnectionError,
    AsyncClient,
    Client,
    Clock,
    ConfigurationError,
    ConflictError,
    Order,
    _gate,
)
from petstore_client.testing import Answered, FakePetstore, Raw, Serve
from testing.client_variants import Connect, Held, Own, faulty
from testing.served_fake import Handler, serving

ORDERS = [Order(id=number) for number in range(500)]
JSON = {"content-type": "application/json"}


def in_child(work: Callable[[], object]) -> str:
    """Run in a forked child, and return what the work printed: the repr() of its result, or a traceback."""
    reader, writer = os.pipe()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # tests have threads
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, repr(work()).encode())
        except BaseException:  # noqa: BLE001 - the parent shows it
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    os.waitpid(child, 0)
    return text


class Served(Handler):
    """Responds to every request with the client's port, in an order's id, and the request id that it sent."""

    def respond(self) -> None:
        body = b'[{"id":%d}]' % self.client_address[1]
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        self.send(200, [*headers.items(), ("X-Request-Id", self.headers["X-Request-Id"])], body)


@contextmanager
def server() -> Iterator[str]:
    with serving(Served) as port:
        yield f"http://127.0.0.1:{port}/v1"


def test_a_forked_child_has_its_own_connections_and_may_close_the_client() -> None:
    with server() as url, Client(url, api_key="key") as petstore:
        first = petstore.list_orders()
        assert first == petstore.list_orders()  # over the same connection
        of_child = in_child(lambda: petstore.list_orders() == petstore.list_orders() != first)
        assert "True" == of_child
        assert first == petstore.list_orders()
        assert "None" == in_child(petstore.close)
        assert first == petstore.list_orders()


@pytest.mark.anyio
async def test_a_forked_child_uses_an_asynchronous_client_with_its_own_connections() -> None:
    with server() as url:
        async with AsyncClient(url, api_key="key") as petstore:
            first = await petstore.list_orders()

            def use() -> tuple[bool, list[str]]:
                with warnings.catch_warnings(record=True, action="always") as caught:
                    found = asyncio.run(petstore.list_orders())
                    gc.collect()
                return found != first, [str(each.message) for each in caught if "unclosed" in str(each.message)]

            assert "(True, [])" == in_child(use)  # and it did not close those of its parent
            assert first == await petstore.list_orders()


def test_a_forked_child_does_not_wait_for_requests_of_its_parent() -> None:
    fake = FakePetstore(ORDERS)
    transport = Held(fake)
    mock = httpx2.MockTransport(transport.handle_request)
    with fake.client(transport=mock, timeout=1.0, max_wait=1.0) as petstore, ThreadPoolExecutor() as pool:
        waiting = pool.submit(petstore.list_orders)
        assert transport.sent.wait(60)
        pool.submit(_gate.lock.acquire).result()  # as in a step of another request
        assert "500" == in_child(lambda: len(petstore.list_orders()))
        pool.submit(_gate.lock.release).result()
        transport.release.set()
        assert ORDERS == waiting.result(10)


def test_all_threads_of_a_forked_child_wait_for_its_own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as url, Client(url, api_key="key") as petstore:
        first, making = petstore.list_orders(), threading.Event()

        def slow(**options: Any) -> httpx2.Client:
            making.set()
            time.sleep(0.5)
            return httpx2.Client(**options)

        def use() -> bool:
            with ThreadPoolExecutor() as pool:
                one = pool.submit(petstore.list_orders)
                assert making.wait(60)
                return first not in [petstore.list_orders(), one.result()]

        monkeypatch.setattr(petstore._core, "_make_http", slow)
        assert "True" == in_child(use)
        assert first == petstore.list_orders()


def test_a_forked_child_that_cannot_make_connections_never_uses_those_of_its_parent() -> None:
    with server() as url, Client(url, api_key="key") as petstore:
        first = petstore.list_orders()

        def use() -> bool:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SSL_CERT_FILE", "/nonexistent/ca.pem")
                for _ in range(2):
                    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
                        petstore.list_orders()
            return petstore.list_orders() != first

        assert "True" == in_child(use)
        assert first == petstore.list_orders()


class Wrapped(httpx2.BaseTransport):
    """A transport of a program, around one with connections."""

    def __init__(self) -> None:
        inner = httpx2.HTTPTransport()
        self.handle_request, self.close = inner.handle_request, inner.close  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [httpx2.HTTPTransport, Wrapped, httpx2.Client])
def test_connections_that_cannot_be_renewed_are_refused_in_the_child(kind: Any) -> None:
    given, option = kind(), "http_client" if kind is httpx2.Client else "transport"
    with server() as url, Client(url, api_key="key", **{option: given}) as petstore:
        first = petstore.list_orders()
        assert "make the client after the fork" in in_child(petstore.list_orders)
        assert first == petstore.list_orders()
    given.close()


def test_an_iteration_continues_only_in_the_parent() -> None:
    fake = faulty(ORDERS, Answered(200, b'[{"id":1},' + b" " * 300_000 + b'{"id":2}]'))
    with fake.client() as petstore:
        iteration = petstore.iter_orders()
        assert Order(id=1) == next(iteration)
        assert "continues only in the parent" in in_child(lambda: list(iteration))
        assert [Order(id=2)] == list(iteration)


class Closable(httpx2.SyncByteStream):
    """The beginning of a list, which records when it is closed."""

    closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b'[{"id":1},{"id":2},'
        yield b'{"id":3}]'

    def close(self) -> None:
        self.closed = True


def test_a_child_that_ends_an_iteration_leaves_the_response_open() -> None:
    body = Closable()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=JSON, stream=body))
    with FakePetstore().client(transport=transport) as petstore:
        iteration = petstore.iter_orders()
        next(iteration)

        def end() -> bool:
            iteration.close()
            return body.closed

        assert "False" == in_child(end)
        iteration.close()
        assert body.closed


OTHER = {**JSON, "x-request-id": "petstore-client-of-another-request"}
MISSING = Answered(404, b'{"code":"order_not_found","message":"No.","status":404}', OTHER)


AFTER_ONE_OF_A_FRONT = Answered(204, b"", {**OTHER, "x-request-id": f"f058ebd6, {OTHER['x-request-id']}"})


@pytest.mark.parametrize("fault", [Answered(204, b"", OTHER), MISSING, AFTER_ONE_OF_A_FRONT])
def test_a_response_to_another_request_is_not_accepted(connect: Connect, fault: Answered) -> None:
    fake = faulty([Order(id=1)], fault)
    with connect(fake) as petstore:
        petstore.cancel_order(1)
        fake.then(Answered(200, b'[{"id":99}]', OTHER))
        assert [Order(id=1)] == petstore.list_orders()
        fake.then(fault)
        with pytest.raises(APIConnectionError, match=r"of-another-request.*another process") as caught:
            petstore.with_options(max_retries=0).cancel_order(1)
    assert ({1}, 5) == (fake.cancelled, len(fake.requests))
    assert caught.value.may_have_been_applied


@pytest.mark.parametrize("replaced", ["f058ebd6-02f7-4d3f-942e-904344e8cde5", "5f0a4c3e9d7b48a1b7a6c5d4e3f2a1b0", ""])
def test_a_front_may_replace_the_request_id(connect: Connect, replaced: str) -> None:
    fake = FakePetstore([Order(id=1), Order(id=2)], shipped=[2])

    def replace(request: httpx2.Request, _: Clock, serve: Serve) -> Raw:
        """Replace the X-Request-Id of a request, so that the service returns the new one."""
        request.headers["x-request-id"] = replaced
        return serve()

    fake.then(*[Own(replace)] * 2)
    with connect(fake) as petstore:
        petstore.cancel_order(1)
        with pytest.raises(ConflictError) as caught:
            petstore.cancel_order(2)
        assert not caught.value.may_have_been_applied
        assert petstore.last_response
        shown = petstore.last_response.request_id, caught.value.request_id
    assert not replaced or (replaced, replaced) == shown
    assert 2 == len(fake.requests)


@pytest.mark.parametrize("joined", ["{}, f058ebd6", "f058ebd6, {}", "{},f058ebd6", "f058ebd6 ,{}"])
def test_a_front_may_add_a_request_id_of_its_own(connect: Connect, joined: str) -> None:
    fake = FakePetstore([Order(id=1), Order(id=2)], shipped=[2])

    def add(request: httpx2.Request, _: Clock, serve: Serve) -> Raw:
        response = serve()
        both = joined.format(request.headers["x-request-id"])
        return replace(response, headers={**response.headers, "x-request-id": both})

    fake.then(*[Own(add)] * 2)
    with connect(fake) as petstore:
        petstore.cancel_order(1)
        with pytest.raises(ConflictError) as caught:
            petstore.cancel_order(2)
    assert caught.value.request_id == fake.requests[1].headers["x-request-id"]
    assert 2 == len(fake.requests)


def test_a_proxy_without_request_ids_is_accepted(connect: Connect) -> None:
    fake = faulty([Order(id=1)], Answered(503, b"", {"x-request-id": "of-the-proxy"}))
    with connect(fake) as petstore:
        assert [Order(id=1)] == petstore.list_orders()


def test_iterations_in_reference_cycles_are_collected_at_any_point() -> None:
    fake = FakePetstore(ORDERS, per_minute=10_000)
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with fake.client() as petstore:
            for _ in range(50):
                cycle: list[object] = [petstore.iter_orders()]
                cycle.append(cycle)
                next(cycle[0])  # type: ignore[call-overload]
                del cycle
                petstore.cancel_order(len(fake.cancelled))
    finally:
        gc.set_threshold(*thresholds)
    assert 50 == len(fake.cancelled)
