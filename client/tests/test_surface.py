"""The public surface: names, signatures, imports."""

import ast
import dataclasses
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import petstore_client
from petstore_client import V2, AsyncClient, AsyncV2, CallOptions, Client, Pet, errors, testing, v2
from petstore_client._options import Options
from petstore_client._webhooks import AsyncWebhooks, Webhooks
from petstore_client.testing import FakeClock, FakePetstore
from testing.documents import read_yaml

SOURCE = Path(petstore_client.__file__).parent
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", [petstore_client, errors, testing, v2])
def test_all_exported_names_exist_and_of_the_package_are_all(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert all(hasattr(module, name) for name in names)  # which loads them
    public = {name for name, value in vars(module).items() if name[0] != "_" and not inspect.ismodule(value)}
    assert module in (v2, errors) or public == set(names) - {"__version__"}


@pytest.mark.parametrize("name", [n for n in [*petstore_client.__all__, *testing.__all__] if n[0] != "_"])
def test_every_exported_name_has_a_docstring_and_can_get_more_fields(name: str) -> None:
    thing = getattr(petstore_client, name, None) or getattr(testing, name)
    assert thing.__doc__ or name in ("ErrorCode", "Receiver", "Serve")
    assert not isinstance(thing, type) or not issubclass(thing, tuple)  # whose length programs could rely on
    for attribute, value in vars(thing).items():
        if inspect.isfunction(value) and attribute[0] != "_" and name in ("Client", "AsyncClient", "FakePetstore"):
            assert value.__doc__, attribute


def test_fields_of_events_and_responses_are_keyword_arguments() -> None:
    kinds = petstore_client.ResponseEvent, petstore_client.RetryEvent, petstore_client.RateLimitEvent, testing.Raw
    fields = [field for kind in kinds for field in dataclasses.fields(kind)]
    assert ["status", "headers"] == [field.name for field in fields if not field.kw_only]


def methods(kind: type) -> dict[str, dict[str, object]]:
    """The public methods, with their parameters and the defaults of these."""
    return {
        name: {parameter.name: parameter.default for parameter in inspect.signature(value).parameters.values()}
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def test_both_clients_have_the_same_methods() -> None:
    assert methods(Client) == methods(AsyncClient)
    assert {"list_orders", "iter_orders", "cancel_order", "get_pet", "close"} == set(methods(Client))


def test_version_2_has_the_same_methods_and_parameters_in_both_clients() -> None:
    assert methods(V2) == methods(AsyncV2)
    assert methods(Webhooks) == methods(AsyncWebhooks)
    of_orders = {snake(name) for name in OPERATIONS if "Webhook" not in name}
    assert {"iter_orders", "follow_changes", *of_orders} == set(methods(V2))
    assert {*map(snake, OPERATIONS)} - of_orders == {
        f"{name}_webhook{'s' * (name == 'list')}" for name in methods(Webhooks)
    }
    assert ["self", "limit", "filters"] == list(methods(V2)["iter_orders"])
    assert {"limit": 100, "cursor": None}.items() <= methods(V2)["list_orders"].items()
    for name, wait in {"list_changes": 0, "follow_changes": 30}.items():
        assert {"self", "after", "limit", "wait"} == methods(V2)[name].keys()
        assert {"after": None, "limit": 1000, "wait": wait}.items() <= methods(V2)[name].items()


(CONTRACT_FILE,) = (ROOT / "server" / "src").glob("*/api/openapi-v2.yaml")
CONTRACT = read_yaml(CONTRACT_FILE)
OPERATIONS: dict[str, dict[str, Any]] = {
    operation["operationId"]: operation for item in CONTRACT["paths"].values() for operation in item.values()
}


def method_of(operation: str) -> Any:
    """The method of the client for an operation; `createWebhook` is `create` of `webhooks`."""
    return getattr(Webhooks if "Webhook" in operation else V2, snake(re.sub("Webhooks?$", "", operation)))


OTHER_NAMES = {"from": "start", "to": "end", "creates_only": "create_only"}
"""Names of the client for those of the contract, where they differ."""


def snake(name: str) -> str:
    """`shipDateFrom` and `Idempotency-Key` as the client writes them."""
    found = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", name).lower()
    return OTHER_NAMES.get(found, found)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_parameter_and_field_of_the_contract_is_one_of_the_client(name: str) -> None:
    components, operation = CONTRACT["components"], OPERATIONS[name]
    references = {each["$ref"].rpartition("/")[2] for each in operation["parameters"]}
    parameters = [components["parameters"][each] for each in references - {"CreatesOnly", "IfNoneMatch"}]
    wanted = {snake(parameter["name"]) for parameter in parameters} | ({"create_only"} & set(map(snake, references)))
    for content in operation.get("requestBody", {"content": {}})["content"].values():
        schema = content["schema"]["$ref"].rpartition("/")[2]
        wanted |= set(map(snake, components["schemas"][schema]["properties"]))
    taken = set(inspect.signature(method_of(name)).parameters) - {"self"}
    if "filters" in taken:
        taken = taken - {"filters"} | set(v2.Filters.__annotations__)
    assert wanted == taken


BATCH = [v2.Put, v2.Update, v2.Ship, v2.Complete, v2.Cancel]


@pytest.mark.parametrize("kind", BATCH)
def test_an_operation_of_a_batch_has_the_arguments_of_its_method(kind: Any) -> None:
    method = getattr(V2, f"{kind.__name__.lower()}_order")
    taken = {parameter.name: parameter.default for parameter in inspect.signature(method).parameters.values()}
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    assert {**taken, "self": None} == {"self": None, **fields} | {"order_id": inspect.Parameter.empty}
    assert ["order_id"] == [field.name for field in dataclasses.fields(kind) if not field.kw_only]


def test_a_batch_has_every_operation_of_the_contract() -> None:
    operations = CONTRACT["components"]["schemas"]["BatchOperation"]["properties"]["operation"]["enum"]
    assert sorted(operations) == sorted(kind.__name__.lower() for kind in BATCH)


def test_every_filter_is_an_option_of_the_command() -> None:
    from petstore_client.cli.command import petstore_client as command

    listing = command.commands["orders"].commands["list"]  # type: ignore[attr-defined]
    assert {*v2.Filters.__annotations__, "limit"} <= {option.name for option in listing.params}


@pytest.mark.parametrize("method", [V2.list_orders, AsyncV2.list_orders])
def test_help_names_every_filter(method: Any) -> None:
    shown = pydoc.plain(pydoc.render_doc(method))
    named = set(re.findall(r"\w+", shown.partition("filters: ")[2]))
    assert v2.Filters.__annotations__.keys() <= named


def test_dir_shows_what_there_is() -> None:
    code = "import petstore_client as p; print(*dir(p)); p.testing.FakePetstore, p.v2.Order, p.AsyncClient, p.Client"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"AsyncClient", "Client", "testing", "v2", *petstore_client.__all__} <= set(done.stdout.split())


def documented(text: str | None) -> set[str]:
    """The names of the arguments that a docstring describes."""
    heads = [line.split(":")[0] for line in inspect.cleandoc(text or "").splitlines() if ":" in line]
    return {word.strip() for head in heads for word in head.split(",")}


def test_every_argument_is_documented() -> None:
    assert set(inspect.signature(Client).parameters) <= documented(Client.__init__.__doc__)
    assert set(v2.Filters.__annotations__) <= documented(v2.Filters.__doc__)
    for name, method in [*vars(V2).items(), *vars(Webhooks).items()]:
        if inspect.isfunction(method) and name[0] != "_":
            arguments = set(inspect.signature(method).parameters) - {"self", "order_id", "webhook_id", "filters"}
            assert arguments <= documented(method.__doc__), name


def test_with_options_takes_options_of_the_constructor_with_the_same_types() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(Options)}
    assert {"request_id"} == CallOptions.__annotations__.keys() - inspect.signature(Client).parameters.keys()
    assert CallOptions.__annotations__.items() <= fields.items()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_option_reaches_its_place(kind: Any) -> None:
    given = {
        "base_url": "http://x.test/v1", "api_key": "key", "timeout": 1.5, "max_retries": 2, "max_wait": 3.5,
        "deadline": 4.5, "retry_timeout": 5.5, "conditional": False, "headers": {"X-A": "1"}, "app_name": "acme",
        "on_retry": print, "on_rate_limit": repr, "on_response": str, "clock": FakeClock(), "jitter": float,
    }  # fmt: skip
    assert set(inspect.signature(kind).parameters) == {*given, "transport", "http_client"}
    made = kind(**given)
    assert {**given, "api_key": None} == {name: getattr(made._options, name) for name in given}


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_get_pet_warns_about_the_sunset_at_the_line_of_the_caller_and_logs_it_once(
    kind: type[Client | AsyncClient], caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakePetstore(pets=[Pet(id=3, name="Clover", tag="rabbit")])
    petstore = kind(fake.base_url, api_key=fake.api_key, transport=fake)
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match="works until 2027-12-01") as caught:
            found = petstore.get_pet(3) if isinstance(petstore, Client) else await petstore.get_pet(3)
        assert (Pet(id=3, name="Clover", tag="rabbit"), __file__) == (found, caught[0].filename)
    assert ["get_pet is deprecated: GET /pets/{petId} works until 2027-12-01."] == caplog.messages
    assert "GET /pets/{petId} is deprecated" in vars(kind.get_pet)["__deprecated__"]


def test_importing_the_package_needs_only_httpx2_and_msgspec() -> None:
    code = (
        "import sys; import httpx2, msgspec, httpcore2, json, logging, asyncio; before = set(sys.modules);"
        "import petstore_client, petstore_client.testing;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ["petstore_client"] == done.stdout.split()


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import petstore_client.cli", {"logging", "msgspec", "petstore_client.errors"}),  # nothing handles Ctrl-C yet
        ("from petstore_client.cli.command import petstore_client", {"asyncio", "httpx2", "ssl"}),
        ("from petstore_client import Client; Client('http://x.test/v1', api_key='key')", {"asyncio", "click"}),
    ],
    ids=["entry point", "command", "client"],
)
def test_only_what_is_used_is_loaded(code: str, absent: set[str]) -> None:
    code += "; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set() == absent & set(done.stdout.split())


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"petstore_client.* has no attribute 'Server'"):
        petstore_client.Server  # type: ignore[attr-defined]  # noqa: B018


def test_every_module_is_short_and_has_a_docstring() -> None:
    for module in SOURCE.rglob("*.py"):
        text = module.read_text()
        assert len(text.splitlines()) <= 300, module
        assert ast.get_docstring(ast.parse(text)), module
