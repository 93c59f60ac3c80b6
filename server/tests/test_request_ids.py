"""X-Request-Id: which ids of clients are used, and that the audit log keeps the one of each change."""

from itertools import pairwise

import pytest

from petstore_server.domain.orders import Order
from testing.service import Service, embedded

pytestmark = pytest.mark.usefixtures("each_deployment")

V1, V2 = "/v1/store/orders", "/v2/store/orders"


async def recorded(service: Service, action: str) -> list[tuple[str, str | None]]:
    """The subject and the request id of each change with this action."""
    entries = [entry async for entry in service.backend.store.audit.entries()]
    return [(entry.subject, entry.request_id) for entry in entries if entry.action == action]


@embedded
async def test_the_ids_do_not_show_how_many_requests_others_make(service: Service) -> None:
    responses = [await service.client.get(V1) for _ in range(1000)]
    ids = [response.headers["x-request-id"].removeprefix("rrrrrr-") for response in responses]
    time = f"{int(service.clock.now * 1_000_000):x}"
    assert ({time}, 1000) == ({text[:-12] for text in ids}, len({*ids}))
    numbers = [int(text[-12:], 16) for text in ids]
    ascending = sum(one < next_one for one, next_one in pairwise(numbers))
    assert 350 < ascending < 650  # the standard deviation of random ones is 9


@embedded
async def test_the_ids_ascend_with_the_time(service: Service) -> None:
    """The audit log has an index of them: random ones would touch a page of it for each change."""
    ids = []
    for _ in range(20):
        ids.append((await service.client.get(V1)).headers["x-request-id"])
        service.clock.now += 0.001
    assert sorted(ids) == ids


UNUSABLE = [
    "a" * 129,
    "two words",
    "tab\there",
    "caf\xe9",
    "pso_live_" + "a" * 33,
    "x-pso_test_abc",
    "pso%255FLive-a-b",
]


@embedded
async def test_the_longest_request_id_is_used_and_an_unusable_one_is_replaced_everywhere(service: Service) -> None:
    given = ["~" * 128, *UNUSABLE, ""]
    await service.orders(*map(Order, range(len(given))))
    key = await service.key()
    expected = []
    for number, request_id in enumerate(given):
        headers = [(b"Authorization", f"Bearer {key}".encode()), (b"X-Request-Id", request_id.encode("latin-1"))]
        response = await service.client.delete(f"{V1}/{number}", headers=headers)
        used = response.headers["x-request-id"]
        assert (204, number == 0, True) == (response.status_code, used == request_id, used.isascii())
        expected.append((f"order:{number}", used))
    assert expected == await recorded(service, "order.cancel")
