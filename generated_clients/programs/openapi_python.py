"""Calls of the Python clients that openapi-python-client makes."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import petstore_v1
import petstore_v2
from petstore_v1.api.orders import cancel_order as cancel_order_1
from petstore_v1.api.orders import list_orders as list_orders_1
from petstore_v1.api.pets import get_pet
from petstore_v1.types import UNSET as UNSET_1
from petstore_v2.api.orders import (
    batch_orders,
    cancel_order,
    complete_order,
    get_order,
    list_changes,
    list_orders,
    place_order,
    put_order,
    ship_order,
    update_order,
)
from petstore_v2.api.usage import get_usage
from petstore_v2.api.webhooks import (
    create_webhook,
    delete_webhook,
    get_webhook,
    list_webhooks,
    ping_webhook,
    rotate_webhook,
    update_webhook,
)
from petstore_v2.models import (
    BatchOperation,
    BatchOperationOperation,
    OrderBatch,
    OrderCorrection,
    OrderPlacement,
    OrderReplacement,
    OrderSort,
    StatusFilter,
    WebhookChange,
    WebhookCreation,
)
from petstore_v2.types import UNSET

API, KEY, LIMITED, STUB = (os.environ[name] for name in ("API", "KEY", "LIMITED", "STUB"))
BIG = 9007199254740993
SHIPPED_AT = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)


def first(base: str = API, key: str = KEY) -> Any:
    return petstore_v1.AuthenticatedClient(base_url=f"{base}/v1", token=key)


def second(base: str = API, key: str = KEY) -> Any:
    return petstore_v2.AuthenticatedClient(base_url=f"{base}/v2", token=key)


V1, V2 = first(), second()
V2_OPERATIONS = (
    "listOrders putOrder updateOrder shipOrder completeOrder batchOrders placeOrder listChanges getUsage getOrder "
    "createWebhook listWebhooks getWebhook updateWebhook pingWebhook rotateWebhook deleteWebhook"
)
webhook = ["wh_1"]  # the identifier of the last webhook that was created


def new_webhook(base: str) -> Any:
    created = create_webhook.sync_detailed(client=second(base), body=WebhookCreation(url="https://127.0.0.1:9/"))
    if created.status_code == 201:
        assert created.parsed.secret.startswith("whsec_")
        webhook[:] = [created.parsed.id]
    return created


def call(version: str, base: str, name: str) -> Any:
    if version == "v1":
        operations: dict[str, Callable[[], Any]] = {
            "listOrders": lambda: list_orders_1.sync_detailed(client=first(base)),
            "cancelOrder": lambda: cancel_order_1.sync_detailed(7, client=first(base)),
            "getPet": lambda: get_pet.sync_detailed(1, client=first(base)),
        }
        return operations[name]()
    placement = OrderPlacement(pet_id=1, quantity=1)
    ship = BatchOperation(operation=BatchOperationOperation.SHIP, order_id=12)
    operations = {
        "listOrders": lambda: list_orders.sync_detailed(client=second(base)),
        "getOrder": lambda: get_order.sync_detailed(7, client=second(base)),
        "cancelOrder": lambda: cancel_order.sync_detailed(7, client=second(base)),
        "putOrder": lambda: put_order.sync_detailed(
            7, client=second(base), body=OrderReplacement(pet_id=1, quantity=1)
        ),
        "updateOrder": lambda: update_order.sync_detailed(7, client=second(base), body=OrderCorrection(quantity=2)),
        "shipOrder": lambda: ship_order.sync_detailed(7, client=second(base)),
        "completeOrder": lambda: complete_order.sync_detailed(7, client=second(base)),
        "batchOrders": lambda: batch_orders.sync_detailed(client=second(base), body=OrderBatch(operations=[ship])),
        "placeOrder": lambda: place_order.sync_detailed(client=second(base), body=placement, idempotency_key="k"),
        "listChanges": lambda: list_changes.sync_detailed(client=second(base), limit=1000),
        "getUsage": lambda: get_usage.sync_detailed(client=second(base)),
        "createWebhook": lambda: new_webhook(base),
        "listWebhooks": lambda: list_webhooks.sync_detailed(client=second(base)),
        "getWebhook": lambda: get_webhook.sync_detailed(*webhook, client=second(base)),
        "updateWebhook": lambda: update_webhook.sync_detailed(
            *webhook, client=second(base), body=WebhookChange(state="paused")
        ),
        "pingWebhook": lambda: ping_webhook.sync_detailed(*webhook, client=second(base)),
        "rotateWebhook": lambda: rotate_webhook.sync_detailed(*webhook, client=second(base)),
        "deleteWebhook": lambda: delete_webhook.sync_detailed(*webhook, client=second(base)),
    }
    return operations[name]()


def refused(response: Any) -> tuple[int, str, str | None]:
    """The status, the code and Retry-After of an error, which is also parsed."""
    assert response.parsed.status == response.status_code
    return int(response.status_code), json.loads(response.content)["code"], response.headers.get("Retry-After")


def listed(**query: Any) -> list[int]:
    return [order.id for order in list_orders.sync(client=V2, **query).data]


def ship_dates() -> None:
    one, two, *_ = list_orders_1.sync(client=V1)
    assert (one.ship_date, two.ship_date) == (SHIPPED_AT, SHIPPED_AT + timedelta(milliseconds=250))
    assert get_order.sync(2, client=V2).ship_date == two.ship_date


def big_ids() -> None:
    order = get_order.sync(BIG, client=V2)
    assert (BIG, BIG, BIG) == (list_orders_1.sync(client=V1)[-1].id, order.id, order.quantity)


def null() -> None:
    assert UNSET_1 is list_orders_1.sync(client=V1)[2].pet_id
    order = OrderPlacement(pet_id=1, quantity=1, ship_date=None, reference=None)
    placed = place_order.sync(client=V2, body=order, idempotency_key="null")
    assert (UNSET, UNSET, "pending") == (placed.ship_date, placed.reference, placed.status)


def no_content() -> None:
    assert 204 == cancel_order_1.sync_detailed(5, client=V1).status_code
    assert 204 == cancel_order.sync_detailed(6, client=V2).status_code


def not_found() -> None:
    for response in (cancel_order_1.sync_detailed(999, client=V1), get_order.sync_detailed(999, client=V2)):
        assert (404, "order_not_found", None) == refused(response)


def conflict() -> None:
    for response in (cancel_order_1.sync_detailed(4, client=V1), cancel_order.sync_detailed(4, client=V2)):
        assert (409, "order_already_shipped", None) == refused(response)
    order = OrderPlacement(pet_id=1, quantity=1, ship_date=SHIPPED_AT, reference="PO 17 + a")
    placed = place_order.sync_detailed(client=V2, body=order, idempotency_key="one")
    assert (SHIPPED_AT, "PO 17 + a") == (placed.parsed.ship_date, placed.parsed.reference)
    assert f"orders/{placed.parsed.id}" == placed.headers["Location"]
    again = place_order.sync_detailed(client=V2, body=order, idempotency_key="two")
    assert (409, "reference_in_use", None) == refused(again)


def limited() -> None:
    client = second(key=LIMITED)
    assert get_usage.sync(client=client).plan == "enterprise"
    for response in (get_usage.sync_detailed(client=client), list_orders_1.sync_detailed(client=first(key=LIMITED))):
        status, code, retry_after = refused(response)
        assert (429, "rate_limit_exceeded", True) == (status, code, int(retry_after or 0) > 0)


def reference() -> None:
    assert [1] == listed(reference=["Summer order + 2"])
    assert [1, 2] == listed(reference=["Summer order + 2", "B"])


def times() -> None:
    berlin = (SHIPPED_AT + timedelta(milliseconds=250)).astimezone(timezone(timedelta(hours=1)))
    assert [2] == listed(ship_date_from=berlin, ship_date_to=berlin + timedelta(days=1))


def three_pages() -> None:
    found: list[int] = []
    cursor, pages = UNSET, 0
    while not pages or cursor is not UNSET:
        status = [StatusFilter.PENDING, StatusFilter.SHIPPED]
        filters = {"pet_id": 77, "status": status, "sort": OrderSort.ID_DESCENDING, "limit": 1}
        page = list_orders.sync(client=V2, cursor=cursor, **filters)
        found += [order.id for order in page.data]
        cursor, pages = page.next_cursor, pages + 1
    assert ([13, 12, 11], True) == (found, pages >= 3)


def one_field() -> None:
    changed = update_order.sync(1, client=V2, body=OrderCorrection(quantity=5))
    assert (5, 1, SHIPPED_AT, "Summer order + 2") == (
        changed.quantity,
        changed.pet_id,
        changed.ship_date,
        changed.reference,
    )
    assert UNSET is update_order.sync(1, client=V2, body=OrderCorrection(reference=None)).reference


def unknown_status() -> None:
    client = second(f"{STUB}/new")
    assert "returned" == get_order.sync(7, client=client).status == list_orders.sync(client=client).data[0].status


def new_field() -> None:
    client = second(f"{STUB}/new")
    assert {"colour": "red"} == get_order.sync(7, client=client)["giftWrap"]
    assert ("team", 1) == (get_usage.sync(client=client).plan, len(list_changes.sync(client=client).data))


def every_operation() -> None:
    for version, names in {"v1": "listOrders getPet", "v2": V2_OPERATIONS}.items():
        for name in names.split():
            assert call(version, API, name).status_code < 300, name


def every_error() -> None:
    for error in os.environ["ERRORS"].split():
        version, status, code, name = error.split(":")
        found = refused(call(version, f"{STUB}/{code}", name))
        assert (int(status), code) == found[:2], error
        assert (status in ("429", "503")) <= (found[2] == "42"), error


CASES = {
    "ship dates": ship_dates,
    "ids above 2^53": big_ids,
    "null": null,
    "204": no_content,
    "404": not_found,
    "409": conflict,
    "429 with Retry-After": limited,
    "a reference with spaces and +": reference,
    "times in queries": times,
    "a page of three": three_pages,
    "one field changed": one_field,
    "an unknown status": unknown_status,
    "a new field": new_field,
    "every operation": every_operation,
    "every error": every_error,
}

for name, case in CASES.items():
    try:
        case()
    except Exception as error:  # noqa: BLE001 - the next case comes after it
        print(f"failed {name}: {type(error).__name__} {error}".replace("\n", " ")[:400])
    else:
        print(f"ok {name}")
