"""Calls of the Python clients that openapi-generator makes."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import petstore_v1
import petstore_v2

API, KEY, LIMITED, STUB = (os.environ[name] for name in ("API", "KEY", "LIMITED", "STUB"))
BIG = 9007199254740993
SHIPPED_AT = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
RECEIVER = "https://127.0.0.1:9/"
webhook = ["wh_1"]  # the identifier of the last webhook that was created


def client(package: Any, version: str, base: str = API, key: str = KEY) -> Any:
    configuration = package.Configuration(host=f"{base}/{version}", access_token=key)
    configuration.retries = False  # otherwise urllib3 sleeps through Retry-After, without a word
    return package.ApiClient(configuration)


def calls(version: str, base: str = API, key: str = KEY) -> dict[str, Callable[[], Any]]:
    """Each operation with arguments that fit it, by its name in the contract."""
    if version == "v1":
        made = client(petstore_v1, version, base, key)
        orders, pets = petstore_v1.OrdersApi(made), petstore_v1.PetsApi(made)
        return {
            "listOrders": orders.list_orders,
            "cancelOrder": lambda: orders.cancel_order(999),
            "getPet": lambda: pets.get_pet(1),
        }
    made = client(petstore_v2, version, base, key)
    orders, usage, webhooks = petstore_v2.OrdersApi(made), petstore_v2.UsageApi(made), petstore_v2.WebhooksApi(made)

    def create_webhook() -> None:
        created = webhooks.create_webhook(petstore_v2.WebhookCreation(url=RECEIVER))
        assert created.secret.startswith("whsec_")
        webhook[:] = [created.id]

    return {
        "listOrders": orders.list_orders,
        "getOrder": lambda: orders.get_order(7),
        "cancelOrder": lambda: orders.cancel_order(999),
        "putOrder": lambda: orders.put_order(7, petstore_v2.OrderReplacement(pet_id=1, quantity=1)),
        "updateOrder": lambda: orders.update_order(7, petstore_v2.OrderCorrection(quantity=2)),
        "shipOrder": lambda: orders.ship_order(7),
        "completeOrder": lambda: orders.complete_order(7),
        "batchOrders": lambda: orders.batch_orders(ship(12)),
        "placeOrder": lambda: orders.place_order("k", petstore_v2.OrderPlacement(pet_id=1, quantity=1)),
        "listChanges": lambda: orders.list_changes(limit=1000),
        "getUsage": usage.get_usage,
        "createWebhook": create_webhook,
        "listWebhooks": webhooks.list_webhooks,
        "getWebhook": lambda: webhooks.get_webhook(*webhook),
        "updateWebhook": lambda: webhooks.update_webhook(*webhook, petstore_v2.WebhookChange(state="paused")),
        "pingWebhook": lambda: webhooks.ping_webhook(*webhook),
        "rotateWebhook": lambda: webhooks.rotate_webhook(*webhook),
        "deleteWebhook": lambda: webhooks.delete_webhook(*webhook),
    }


def ship(order_id: int) -> Any:
    return petstore_v2.OrderBatch(operations=[petstore_v2.BatchOperation(operation="ship", order_id=order_id)])


V1 = petstore_v1.OrdersApi(client(petstore_v1, "v1"))
V2 = petstore_v2.OrdersApi(client(petstore_v2, "v2"))


def refused(call: Callable[[], object]) -> tuple[int, str, str | None]:
    """The status, the code and Retry-After of an error."""
    try:
        call()
    except (petstore_v1.ApiException, petstore_v2.ApiException) as error:
        return error.status, json.loads(error.body)["code"], error.headers.get("Retry-After")
    raise AssertionError("no error")


def ship_dates() -> None:
    first, second, *_ = V1.list_orders()
    assert (first.ship_date, second.ship_date) == (SHIPPED_AT, SHIPPED_AT + timedelta(milliseconds=250))
    assert V2.get_order(2).ship_date == second.ship_date


def big_ids() -> None:
    assert BIG == V1.list_orders()[-1].id
    order = V2.get_order(BIG)
    assert (BIG, BIG) == (order.id, order.quantity)


def null() -> None:
    assert (None, None) == (V1.list_orders()[2].pet_id, V2.get_order(3).ship_date)
    placed = V2.place_order("null", petstore_v2.OrderPlacement(pet_id=1, quantity=1, ship_date=None, reference=None))
    assert (None, None, "pending") == (placed.ship_date, placed.reference, placed.status)


def no_content() -> None:
    assert V1.cancel_order(5) is None
    assert V2.cancel_order(6) is None


def not_found() -> None:
    assert {(404, "order_not_found", None)} == {
        refused(lambda: V1.cancel_order(999)),
        refused(lambda: V2.get_order(999)),
    }


def conflict() -> None:
    shipped = (409, "order_already_shipped", None)
    assert [shipped] * 2 == [refused(lambda: V1.cancel_order(4)), refused(lambda: V2.cancel_order(4))]
    order = petstore_v2.OrderPlacement(pet_id=1, quantity=1, ship_date=SHIPPED_AT, reference="PO 17 + a")
    placed = V2.place_order_with_http_info("one", order)
    headers = {name.lower(): value for name, value in placed.headers.items()}
    assert f"orders/{placed.data.id}" == headers["location"]
    assert (SHIPPED_AT, "PO 17 + a") == (placed.data.ship_date, placed.data.reference)
    assert (409, "reference_in_use", None) == refused(lambda: V2.place_order("two", order))


def limited() -> None:
    usage = petstore_v2.UsageApi(client(petstore_v2, "v2", key=LIMITED)).get_usage
    usage()
    for call in (usage, petstore_v1.OrdersApi(client(petstore_v1, "v1", key=LIMITED)).list_orders):
        status, code, retry_after = refused(call)
        assert (429, "rate_limit_exceeded", True) == (status, code, int(retry_after or 0) > 0)


def reference() -> None:
    assert [1] == [order.id for order in V2.list_orders(reference=["Summer order + 2"]).data]
    assert [1, 2] == [order.id for order in V2.list_orders(reference=["Summer order + 2", "B"]).data]


def times() -> None:
    berlin = (SHIPPED_AT + timedelta(milliseconds=250)).astimezone(timezone(timedelta(hours=1)))
    assert [2] == [
        order.id for order in V2.list_orders(ship_date_from=berlin, ship_date_to=berlin + timedelta(days=1)).data
    ]


def three_pages() -> None:
    found: list[list[int]] = []
    descending = petstore_v2.OrderSort.ID_DESCENDING
    cursor = None
    while not found or cursor:
        page = V2.list_orders(pet_id=77, status=["pending", "shipped"], sort=descending, limit=1, cursor=cursor)
        found.append([order.id for order in page.data])
        cursor = page.next_cursor
    assert [13, 12, 11] == [number for page in found for number in page]
    assert len(found) >= 3


def one_field() -> None:
    changed = V2.update_order(1, petstore_v2.OrderCorrection(quantity=5))
    assert (5, 1, SHIPPED_AT, "Summer order + 2") == (
        changed.quantity,
        changed.pet_id,
        changed.ship_date,
        changed.reference,
    )
    assert V2.update_order(1, petstore_v2.OrderCorrection(reference=None)).reference is None


def unknown_status() -> None:
    new = petstore_v2.OrdersApi(client(petstore_v2, "v2", f"{STUB}/new"))
    assert "returned" == new.get_order(7).status == new.list_orders().data[0].status


def new_field() -> None:
    made = client(petstore_v2, "v2", f"{STUB}/new")
    order = petstore_v2.OrdersApi(made).get_order(7)
    assert {"giftWrap": {"colour": "red"}} == order.additional_properties
    assert "team" == petstore_v2.UsageApi(made).get_usage().plan
    assert petstore_v2.OrdersApi(made).list_changes().data


def every_operation() -> None:
    for version in ("v1", "v2"):
        for name, call in calls(version).items():
            if name != "cancelOrder" and (version, name) != ("v2", "getOrder"):
                call()


def every_error() -> None:
    for error in os.environ["ERRORS"].split():
        version, status, code, operation = error.split(":")
        found = refused(calls(version, f"{STUB}/{code}")[operation])
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
