"""The places that a new operation, filter or setting needs: a test fails for each that was forgotten.

CONTRIBUTING.md lists the places. Routes, parameters and the client's methods are compared with the contract elsewhere.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from petstore_client import v2
from petstore_client.testing import FakePetstore
from petstore_server.api.contracts import CONTRACTS
from petstore_server.api.v2.input import LIST_ORDERS
from petstore_server.domain.lists import Filters
from petstore_server.domain.orders import Status
from petstore_server.settings import SETTINGS
from testing.documents import ROOT, SOURCE, read_yaml, table
from testing.search_model import all_filters

GUIDE = SOURCE / "api" / "guide"
PROGRAMS = ROOT / "generated_clients" / "programs"
CALLS = "Calls.cs", "Calls.java", "calls.go", "calls.php", "calls.py", "calls.rb"
CALLS_IN_TWO_FILES = "fetch.ts", "openapi_fetch.ts", "openapi_python.py"
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


EVERY_OPERATION = list(operations())
NAMES = sorted({name for *_, name, _ in EVERY_OPERATION})


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


@pytest.mark.parametrize("program", [*CALLS, *CALLS_IN_TWO_FILES])
def test_each_program_of_a_generated_client_names_every_operation(program: str) -> None:
    text = (PROGRAMS / program).read_text() + (PROGRAMS / "cases.ts").read_text() * program.endswith(".ts")
    plain = text.replace("_", "").lower()
    assert [] == [name for name in NAMES if name.lower() not in plain]


def test_the_page_about_versions_names_every_operation_of_version_2() -> None:
    text = (GUIDE / "versions.md").read_text()
    new = {name for version, *_, name, _ in EVERY_OPERATION if version == "v2"}
    assert [] == [name for name in sorted(new) if f"`{name}`" not in text and name != "listOrders"]


def test_the_page_of_the_client_names_every_operation_of_version_2() -> None:
    text = (GUIDE / "client.md").read_text()
    names = [name for version, *_, name, _ in EVERY_OPERATION if version == "v2"]
    methods = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in names]
    methods = [re.sub(r"^(\w+)_webhooks?$", r"\1(", name) for name in methods]
    assert [] == [name for name in methods if f"`{name}" not in text]


def test_the_guide_has_every_parameter_of_lists() -> None:
    shown = [name for names, *_ in table(GUIDE / "guide.md", "parameters") for name in names.split(", ")]
    assert list(LIST_ORDERS.all) == shown


def test_the_model_of_searches_combines_every_filter() -> None:
    found = all_filters(1, (1, 2), 3, (Status.PENDING, Status.SHIPPED), (("A",),), (4,))
    fixed = [name for name in Filters._fields if len({getattr(filters, name) for filters in found}) == 1]
    assert [] == fixed


def test_the_fake_service_has_every_filter() -> None:
    assert set(EXCLUDING) == set(LIST_ORDERS.all) - {"sort", "limit", "cursor"}
    with FakePetstore([ORDER]).client() as petstore:
        assert [1] == [order.id for order in petstore.v2.list_orders().data]
        for name, arguments in EXCLUDING.items():
            assert [] == petstore.v2.list_orders(**arguments).data, name


def test_every_setting_is_used() -> None:
    code = "\n".join(file.read_text() for file in SOURCE.rglob("*.py") if file.parent.name != "settings")
    fields = [setting.names[0].removeprefix("PETSTORE_").lower() for setting in SETTINGS]
    assert fields
    assert [] == [name for name in fields if not re.search(rf"\.{name}\b", code)]
