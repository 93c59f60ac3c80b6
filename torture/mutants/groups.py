"""What `make mutants` changes, and the tests that are to notice: the fast ones that call it directly."""

from typing import NamedTuple


class Group(NamedTuple):
    """Sources, and the test files that are to notice changes of them."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


def _server(*names: str) -> tuple[str, ...]:
    return tuple(f"server/src/petstore_server/{name}" for name in names)


def _tests(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/test_{name}.py" for name in names.split())


GROUPS = {
    "domain": Group(
        _server("domain"),
        _tests(
            "server/tests",
            "accounts domain_values errors orders keys bans windows timestamps search placement placements audit auth "
            "operations limits usage_history v2_parameters v2_orders import_formats import_rejects cli_accounts_keys "
            "console_access storage_search",
        ),
    ),
    "gate": Group(
        _server(*(f"api/{name}.py" for name in ("gate", "callers", "routes", "headers", "errors"))),
        _tests(
            "server/tests",
            "gate auth clients bans overload rate_headers documentation access_log request_ids contract fallback",
        ),
    ),
    "limits": Group(
        _server("limits"), _tests("server/tests", "limits windows fallback redis redis_rules usage_history")
    ),
    "parser": Group(
        _server("server/parser.py", "server/messages.py"),
        _tests("server/tests", "parser framing recent_requests"),
    ),
    "client": Group(
        tuple(f"client/src/petstore_client/_{name}.py" for name in ("gate", "limits", "admission")),
        _tests("client/tests", "admission admission_rules gate_decisions limit_headers waiting"),
    ),
}
