"""The places that a new operation, filter or setting needs: a test fails for each that was forgotten.

CONTRIBUTING.md lists the places. What parameters allow, and the client's methods, are compared with the contract
elsewhere.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import httpx2
import pytest

from bench.orders import FILTERS
from petstore_client import v2
from petstore_client.testing import FakePetstore
from petstore_server.api.contracts import CONTRACTS
from petstore_server.api.v2.input import LIST_ORDERS
from petstore_server.domain.keys import Scope
from petstore_server.domain.lists import Filters
from petstore_server.domain.orders import Order, Status
from petstore_server.settings import SETTINGS
from testing.contract import resolved
from testing.documents import ROOT, SOURCE, read_yaml, table
from testing.search_model import all_filters
from testing.service import Service, bearer, code

GUIDE = SOURCE / "api" / "guide"
PROGRAMS = ROOT / "generated_clients" / "programs"
CALLS = {
    "Calls.cs": ('case "{version}.{name}":', r"\.{Name}\("),
    "Calls.java": ('case "{name}":', r"\.{name}\("),
    "calls.go": ('case "{name}":', r"\.{Name}\("),
    "calls.php": ("'{name}' =>|=== '{name}'", r"->{name}\("),
    "calls.py": ('"{name}":', r"\.{snake}\b"),
    "calls.rb": ("when '{name}'", r"\.{snake}\b"),
    "fetch.ts": (r"\b{name}: \(", r"\.{name}\("),
    "openapi_fetch.ts": (r"\b{name}: \(", r'\.{method}\("{path}"'),
    "openapi_python.py": ('"{name}":', r"\b{snake}(?:_1)?\.sync_detailed\("),
}
"""How each program with a generated client has an operation, as patterns: the case of its name, and the call."""

LISTS = {
    **dict.fromkeys(("Calls.cs", "Calls.java", "calls.go", "calls.php", "calls.rb"), r"\w {name}\b|\b{name} \w"),
    "openapi_python.py": r"\w {name}\b|\b{name} \w",
    "cases.ts": '"{name}"',
}
"""The lists of the operations that a program calls one after the other, but cancelOrder; `calls.py` has none."""

DAY = datetime(2026, 12, 1, tzinfo=UTC)
LATER = datetime(2027, 12, 1, tzinfo=UTC)
EXCLUDING: dict[str, dict[str, Any]] = {
    "status": {"status": "shipped"},
    "petId": {"pet_id": 2},
    "complete": {"complete": False},
    "shipDateFrom": {"ship_date_from": LATER},
    "shipDateTo": {"ship_date_to": DAY},
    "updatedFrom": {"updated_from": LATER},
    "reference": {"reference": "B"},
}
"""For each filter, as arguments of the client, a value that `ORDER` does not match."""

ORDER = v2.Order(
    id=1, pet_id=1, quantity=1, ship_date=DAY, complete=True, status="pending", created_at=DAY, updated_at=DAY,
    reference="A",
)  # fmt: skip


def operations() -> Iterator[tuple[str, str, str, str, list[str]]]:
    """The version, method, path, operationId and scopes of each operation of the contracts."""
    for version, name in CONTRACTS.items():
        for path, item in read_yaml(SOURCE / "api" / f"{name}.yaml")["paths"].items():
            for method, operation in item.items():
                scopes = operation.get("x-required-scopes", [])
                yield version, method.upper(), path, operation["operationId"], scopes


def query_parameters() -> Iterator[tuple[tuple[str, str, str], list[str]]]:
    """The query parameters of each operation, by its version, method and path."""
    for version, name in CONTRACTS.items():
        document = read_yaml(SOURCE / "api" / f"{name}.yaml")
        for path, item in document["paths"].items():
            for method, operation in item.items():
                parameters = [resolved(each, document) for each in operation.get("parameters", [])]
                names = [each["name"] for each in parameters if each["in"] == "query"]
                yield (version, method.upper(), path), names


EVERY_OPERATION = list(operations())
QUERIES = dict(query_parameters())


def snake(name: str) -> str:
    """The name as Python and Ruby spell it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


async def test_the_service_has_a_route_for_every_operation(service: Service) -> None:
    served = {
        (route.template, method, operation.id)
        for route in service.application.routes.all
        for method, operation in route.operations.items()
        if method != "HEAD"
    }
    documented = {
        (f"/{version}{path}", method, name if version == "v1" else f"{version}.{name}")
        for version, method, path, name, _ in EVERY_OPERATION
    }
    assert documented - served == set(), "an operation of the contract has no route"
    assert served - documented == set(), "a route is not in the contract"


async def test_the_service_reads_every_query_parameter(service: Service) -> None:
    headers = bearer(await service.key(scopes=frozenset(Scope)))
    for version, method, path, name, _ in EVERY_OPERATION:
        for parameter in QUERIES[version, method, path]:
            target = f"/{version}{path.format(orderId=1, petId=1, webhookId='wh_1')}"
            response = await service.client.request(method, target, params={parameter: ""}, headers=headers)
            assert (400, "invalid_parameter") == code(response), (name, parameter)
            assert "is not a parameter of this operation" not in response.json()["message"], (name, parameter)


async def test_the_service_has_every_filter(service: Service) -> None:
    await service.orders(Order(1, 1, 1, "2026-12-01T00:00:00Z", True, reference="A"))
    headers = bearer(await service.key())
    for name, [value] in ((name, arguments.values()) for name, arguments in EXCLUDING.items()):
        text = value.isoformat() if isinstance(value, datetime) else str(value).lower() if name == "complete" else value
        response = await service.client.get("/v2/store/orders", params={name: text}, headers=headers)
        assert [] == response.json()["data"], f"listOrders ignores {name}"


@pytest.mark.parametrize(("version", "method", "path", "name", "scopes"), EVERY_OPERATION)
def test_the_fake_service_has_the_operation_with_its_scope(
    version: str, method: str, path: str, name: str, scopes: list[str]
) -> None:
    fake = FakePetstore([ORDER], scopes=[])
    with httpx2.Client(transport=fake, headers={"Authorization": f"Bearer {fake.api_key}"}) as client:
        response = client.request(
            method, f"https://api.example/{version}{path.format(orderId=1, petId=1, webhookId='wh_1')}"
        )
    if scopes:
        assert response.status_code == 403, name
        assert f'scope="{scopes[0]}"' in response.headers["www-authenticate"]
    else:
        assert response.status_code == 200, name


@pytest.mark.parametrize("program", CALLS)
def test_each_program_of_a_generated_client_calls_every_operation(program: str) -> None:
    text = (PROGRAMS / program).read_text()
    patterns = Counter(
        pattern.format(
            version=version, name=name, Name=name[0].upper() + name[1:], snake=snake(name),
            method=method, path=re.escape(path),
        )
        for version, method, path, name, _ in EVERY_OPERATION
        for pattern in CALLS[program]
    )  # fmt: skip
    # An operation of both versions is called twice.
    assert [] == [pattern for pattern, versions in patterns.items() if len(re.findall(pattern, text)) < versions]


@pytest.mark.parametrize("program", LISTS)
def test_each_list_of_operations_of_a_program_has_every_one(program: str) -> None:
    text = (PROGRAMS / program).read_text()
    names = {name for version, *_, name, _ in EVERY_OPERATION if version == "v2" and name != "cancelOrder"}
    assert [] == [name for name in sorted(names) if not re.search(LISTS[program].format(name=name), text)]


def test_the_page_about_versions_names_every_operation_of_version_2() -> None:
    text = (GUIDE / "versions.md").read_text()
    new = {name for version, *_, name, _ in EVERY_OPERATION if version == "v2"}
    assert [] == [name for name in sorted(new) if f"`{name}`" not in text and name != "listOrders"]


def test_the_page_of_the_client_names_every_operation_of_version_2() -> None:
    text = (GUIDE / "client.md").read_text()
    names = [name for version, *_, name, _ in EVERY_OPERATION if version == "v2"]
    methods = [snake(name) for name in names]
    methods = [re.sub(r"^(\w+)_webhooks?$", r"\1(", name) for name in methods]
    assert [] == [name for name in methods if f"`{name}" not in text]


def test_the_page_of_the_client_names_every_filter() -> None:
    text = " ".join((GUIDE / "client.md").read_text().split())
    arguments = re.search(r"Both lists take ([^.]*)\.", text)
    assert arguments
    assert [] == [name for name in v2.Filters.__annotations__ if f"`{name}`" not in arguments[1]]


def test_the_page_of_the_shop_has_every_operation_of_its_systems() -> None:
    shown = set(re.findall(r"^\| `(\w+)` \|", (GUIDE / "shop.md").read_text(), re.MULTILINE))
    assert {name for *_, name, scopes in EVERY_OPERATION if "orders:manage" in scopes} - shown == set()


def test_the_guide_has_every_parameter_of_lists() -> None:
    shown = [name for names, *_ in table(GUIDE / "guide.md", "parameters") for name in names.split(", ")]
    assert list(LIST_ORDERS.all) == shown


def test_the_model_of_searches_combines_every_filter() -> None:
    found = all_filters(1, (1, 2), 3, (Status.PENDING, Status.SHIPPED), (("A",),), (4,))
    fixed = [name for name in Filters._fields if len({getattr(filters, name) for filters in found}) == 1]
    assert [] == fixed, "all_filters of testing/search_model.py has one value of these filters"


def test_the_fake_service_has_every_filter() -> None:
    assert set(EXCLUDING) == set(LIST_ORDERS.all) - {"sort", "limit", "cursor"}, "EXCLUDING has other filters"
    with FakePetstore([ORDER]).client() as petstore:
        assert [1] == [order.id for order in petstore.v2.list_orders().data]
        for name, arguments in EXCLUDING.items():
            assert [] == petstore.v2.list_orders(**arguments).data, name


def test_the_bench_measures_every_filter() -> None:
    measured = {name for values in FILTERS.values() for value in values for name, _ in parse_qsl(value.parameters)}
    unmeasured = {"reference", "sort", "limit", "cursor"}  # its orders have no references
    assert set(LIST_ORDERS.all) - unmeasured == measured, "FILTERS of bench/orders.py has other filters"


def test_every_setting_is_used() -> None:
    code = "\n".join(file.read_text() for file in SOURCE.rglob("*.py") if file.parent.name != "settings")
    fields = [setting.names[0].removeprefix("PETSTORE_").lower() for setting in SETTINGS]
    assert fields
    assert [] == [name for name in fields if not re.search(rf"\.{name}\b", code)]
