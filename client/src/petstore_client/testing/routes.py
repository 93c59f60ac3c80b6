"""Which operation of the fake service responds to a request."""

from collections.abc import Callable

import httpx2

from petstore_client.testing import operations, operations_v2
from petstore_client.testing.faults import Raw, error
from petstore_client.testing.parameters import Refused
from petstore_client.testing.store import Store

Operation = Callable[[Store, httpx2.Request, str], Raw]

OPERATIONS: dict[tuple[str, str, str], Operation] = {
    ("v1", "GET", "/store/orders"): operations.list_orders,
    ("v1", "DELETE", "/store/orders/{id}"): operations.cancel_order,
    ("v1", "GET", "/pets/{id}"): operations.get_pet,
    ("v2", "GET", "/store/orders"): operations_v2.list_orders,
    ("v2", "POST", "/store/orders"): operations_v2.place_order,
    ("v2", "GET", "/store/orders/{id}"): operations_v2.get_order,
    ("v2", "DELETE", "/store/orders/{id}"): operations.cancel_order,
    ("v2", "GET", "/usage"): operations_v2.get_usage,
}
"""By version, method and path."""


def operate(store: Store, request: httpx2.Request, version: str, path: str) -> Raw:
    """The response of the real service to an admitted request."""
    collection, _, identifier = path.rpartition("/")
    operation = OPERATIONS.get((version, request.method, path)) or OPERATIONS.get(
        (version, request.method, f"{collection}/{{id}}"), operations.not_found
    )
    store.track()
    try:
        raw = operation(store, request, identifier)
    except Refused as refused:
        return error(refused.status, refused.code, str(refused))
    store.track()
    return raw
