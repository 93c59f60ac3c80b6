"""The code held to the contract: its routes, codes and scopes, and whatever schemathesis thinks of asking (D18)."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, settings

from petstore_server.api.contracts import load_contract
from petstore_server.api.errors import STATUS
from petstore_server.api.routes import ANY_KEY, PARAMETER
from petstore_server.api.v2.bodies import MAX_OPERATIONS
from petstore_server.api.v2.input import GET_USAGE, LIST_CHANGES, LIST_ORDERS, MAX_WAIT
from petstore_server.domain.errors import DomainError
from petstore_server.domain.keys import Scope
from petstore_server.domain.texts import is_visible
from petstore_server.settings import read_settings
from testing.contract import objects, resolved
from testing.process import EVERY_SCOPE, UNLIMITED, new_key, petstore, serving
from testing.service import Service

CONTRACTS = {version: load_contract(read_settings({}), version) for version in ("v1", "v2")}
NUMBERS = itertools.count(1)
CASES = 10
"""Generated requests for each operation and phase."""

each_version = pytest.mark.parametrize("version", CONTRACTS)


def all_errors(error: type[DomainError] = DomainError) -> Iterator[type[DomainError]]:
    """The errors that a request can have: not those that only commands tell users."""
    if not error.__module__.startswith("petstore_server.cli."):
        yield error
    for kind in error.__subclasses__():
        yield from all_errors(kind)


def paths(version: str) -> list[tuple[str, dict[str, Any]]]:
    """Each path in a contract with its operations by method."""
    return list(CONTRACTS[version]["paths"].items())


def codes(version: str) -> set[str]:
    contract = CONTRACTS[version]
    described = resolved(contract["components"]["schemas"]["Error"]["properties"]["code"], contract)
    return set(described["enum" if version == "v1" else "x-extensible-enum"])


async def test_the_routes_are_the_contracts_paths_methods_and_scopes(service: Service) -> None:
    names = {"v1": "{}", "v2": "v2.{}"}
    documented = {
        (f"/{version}{path}", method.upper()): (
            names[version].format(operation["operationId"]),
            operation.get("x-required-scopes", []),
        )
        for version in CONTRACTS
        for path, item in paths(version)
        for method, operation in item.items()
    }
    served = {
        (route.template, method): (operation.id, [] if operation.scope == ANY_KEY else [operation.scope])
        for route in service.application.routes.all
        for method, operation in route.operations.items()
        if method != "HEAD"  # is described with GET
    }
    assert documented == served
    assert set(Scope) == {scope for _, scopes in served.values() for scope in scopes}


async def test_of_two_templates_that_match_the_same_path_one_is_the_more_specific(service: Service) -> None:
    for one, other in itertools.combinations(service.application.routes.all, 2):
        pairs = list(zip(one.segments, other.segments, strict=False))
        if len(one.segments) == len(other.segments) and all(a == b or PARAMETER in (a, b) for a, b in pairs):
            wider = {a == PARAMETER for a, b in pairs if a != b}  # whether `one` is, wherever they differ
            assert 1 == len(wider), (one.template, other.template)


def test_the_codes_are_the_contracts_enums() -> None:
    assert {error.code for error in STATUS} == codes("v1") | codes("v2")


@each_version
def test_every_pattern_is_one_that_re2_compiles(version: str) -> None:
    patterns = [node["pattern"] for node in objects(CONTRACTS[version]) if "pattern" in node]
    assert patterns
    for pattern in patterns:  # the engine's syntax is that of RE2: neither lookaround nor backreferences
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())


@each_version
def test_every_property_states_its_type(version: str) -> None:
    """Code generators take one without a type for any object, even where `allOf` gives it one."""
    for node in objects(CONTRACTS[version]):
        for name, schema in node.get("properties", {}).items():
            assert schema.keys() & {"type", "$ref"}, (name, node)


@each_version
def test_every_component_is_used_in_a_path(version: str) -> None:
    """Linters do not look into extensions such as `x-other-requests`, and report what only these use."""
    contract, used = CONTRACTS[version], set[str]()
    found = {node["$ref"] for node in objects(contract["paths"]) if "$ref" in node}
    while found - used:
        used |= found
        parts = [contract["components"][kind][name] for _, _, kind, name in (ref.split("/") for ref in found)]
        found = {node["$ref"] for node in objects(parts) if "$ref" in node}
    groups = {kind: parts for kind, parts in contract["components"].items() if kind != "securitySchemes"}
    assert used == {f"#/components/{kind}/{name}" for kind, parts in groups.items() for name in parts}


def test_the_contracts_have_different_titles() -> None:
    assert 2 == len({contract["info"]["title"] for contract in CONTRACTS.values()})


@each_version
def test_an_error_with_a_documented_code_has_its_status_in_the_table(version: str) -> None:
    lost = {error for error in all_errors() if error.code in codes(version) and error not in STATUS}
    abstract = {"DomainError", "NotFound"}  # these are never raised
    assert abstract == {error.__name__ for error in lost}


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any, str], None]]:
    """Sends a generated request of a version to a server with 250 orders, and applies every check to the response."""
    import requests
    from schemathesis.checks import CHECKS, load_all_checks

    load_all_checks()
    checks = list(CHECKS.get_all())
    of_batches = [check for check in checks if check.__name__ != "negative_data_rejection"]
    store = tmp_path_factory.mktemp("fuzzed") / "store.db"
    lines = "".join(f'{{"id":{number},"quantity":{number}}}\n' for number in range(-50, 200))
    assert 0 == petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines).returncode
    key, _ = new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)
    # Each case comes from an address of its own: those without a key would else use up the one they share.
    webhooks = {"PETSTORE_WEBHOOK_SECRET": "s" * 32, "PETSTORE_WEBHOOK_NETWORKS": "127.0.0.0/8"}
    more = {"PETSTORE_TRUSTED_PROXIES": "127.0.0.1", **webhooks}
    with serving(store, **more) as server, requests.Session() as session:
        session.trust_env = False  # looking for proxies takes longer than a request

        def call(case: Any, version: str) -> None:
            number = next(NUMBERS)
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            case.call_and_validate(
                base_url=f"{server.api}/{version}",
                session=session,
                headers={"Authorization": f"Bearer {key}", "X-Forwarded-For": address},
                checks=of_batches if is_batch(case) else checks,
            )

        yield call
        assert "request failed" not in server.log.read_text()


def is_batch(case: Any) -> bool:
    """Whether the request is a batch: a malformed operation in it is its own 400 within a 200."""
    operations = case.body.get("operations") if isinstance(case.body, dict) else None
    return (
        isinstance(operations, list) and case.body.keys() == {"operations"} and 1 <= len(operations) <= MAX_OPERATIONS
    )


def correct(case: Any) -> None:
    """Change what a schema cannot rule out in a valid request, and what is lost on the way from an invalid one."""
    query = case.query or {}
    if str(query.get("wait")) in map(str, range(MAX_WAIT + 1)):
        query["wait"] = 0  # it would take as long
    if case.meta.generation.mode.is_positive:
        correct_valid(query, case.headers or {}, case.body)
        return
    for name in query.keys() - LIST_ORDERS.all.keys() - LIST_CHANGES.all.keys() - GET_USAGE.all.keys():
        query[name] = "x"  # an unknown parameter with an empty list would not be sent
    if not isinstance(query.get("reference", []), list):
        query["reference"] = ""  # a number would be sent as the text of one reference, which is valid
    if case.body is None and case.path.endswith(("/ship", "/rotate")):
        case.body = []  # null is taken for an absent body, which no schema says that all generators understand


def correct_valid(query: dict[str, Any], headers: Any, body: Any) -> None:
    # A cursor belongs to a page, a range must not end before it starts, and usage is kept for a limited time.
    for name in ("cursor", "after", "from", "shipDateFrom"):
        query.pop(name, None)
    for name in ("If-Match", "If-None-Match"):
        headers.pop(name, None)  # no generated ETag is that of an order, and 412 would count as a refusal
    if "Idempotency-Key" in headers:
        headers["Idempotency-Key"] = str(next(NUMBERS))  # the generated one was used before, for another body
    correct_values(query)
    if isinstance(body, dict):
        body.pop("account", None)  # there is no account with a generated name
        if "url" in body:
            body["url"] = "https://127.0.0.1:9/"  # the pattern of a URL that is allowed would be long
        if body.get("after") is not None:
            body["after"] = "beginning"  # no generated text is a position
        correct_values(body)


def correct_values(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, float):
            values[name] = int(value)  # 1.0 is an integer in a schema, but not here
        elif str(value).startswith(("0001-01-01", "9999-12-31")):
            values[name] = "2027-01-01T00:00:00Z"  # the offset may lead out of the years 1 to 9999
        elif name == "reference" and not is_visible(str(value)):  # no portable pattern says what is visible
            values[name] = "x"
        elif name == "reference" and isinstance(value, list):
            values[name] = [text if is_visible(text) else "x" for text in value]


# Hypothesis does not see what refers to its generator, because gc.freeze (in conftest.py) hides it.
@pytest.mark.filterwarnings("ignore:It looks like `register_random`:hypothesis.errors.HypothesisWarning")
@each_version
def test_schemathesis_finds_no_departure(version: str, call: Callable[[Any, str], None]) -> None:
    # Neither at the top nor by its plugin for pytest: loading it takes longer than to collect all other tests, and each
    # test process would do it. So there is also one test for all operations of a version.
    import schemathesis
    from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test

    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
    def check(case: Any) -> None:
        if version == "v2":
            correct(case)
        call(case, version)

    operations = [(path, method.upper()) for path, item in paths(version) for method in item]
    assert operations
    schema = schemathesis.openapi.from_dict(CONTRACTS[version])
    config = HypothesisTestConfig(project=schema.config, modes=list(HypothesisTestMode))
    for path, method in operations:
        create_test(operation=schema[path][method], test_func=check, config=config)()
