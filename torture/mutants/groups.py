"""What `make mutants` changes, and the tests that are to notice: the fast ones that call it directly."""

from pathlib import Path
from typing import NamedTuple


class Group(NamedTuple):
    """Sources, and the test files that are to notice changes of them; with or without the tests on PostgreSQL."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    postgres: bool = False


def files(source: Path) -> list[Path]:
    """The files of a source, which is one or a directory."""
    source = source.resolve()
    return sorted([*source.glob("*.py"), *source.glob("*.lua")]) if source.is_dir() else [source]


def _server(*names: str) -> tuple[str, ...]:
    return tuple(f"server/src/petstore_server/{name}" for name in names)


def _tests(folder: str, names: str) -> tuple[str, ...]:
    """The files of these names, which may have wildcards."""
    found = []
    for name in names.split():
        pattern = f"test_{name}.py"
        found += sorted(str(path) for path in Path(folder).glob(pattern)) or [f"{folder}/{pattern}"]
    return tuple(dict.fromkeys(found))


_STORE = _tests(
    "server/tests",
    "storage_* store_identity search placements list_cache audit usage_history operations import_records "
    "list_turns v2_changes orders_found shop_races missing_store console_access console_forms import_formats "
    "serial_engine",
)

_RUNTIME = "activation application backend health installation maintenance servers workers"

GROUPS = {
    "domain": Group(
        _server("domain"),
        _tests(
            "server/tests",
            "accounts domain_values errors orders keys bans windows timestamps search placements audit auth "
            "operations limits usage_history v2_parameters v2_orders import_formats import_rejects cli_accounts_keys "
            "cli_failures cli_output console_access storage_search texts leaked_keys import_records gate",
        ),
    ),
    "gate": Group(
        _server(*(f"api/{name}.py" for name in ("gate", "callers", "routes", "headers", "errors"))),
        _tests(
            "server/tests",
            "gate auth clients bans overload documentation access_log request_ids contract fallback routes v2_changes "
            "usage_history",
        ),
    ),
    "limits": Group(
        _server("limits", "deadlines.py"),
        _tests("server/tests", "limits windows fallback redis redis_rules usage_history"),
    ),
    "parser": Group(
        _server("server/parser.py", "server/grammar.py", "server/messages.py"),
        _tests("server/tests", "parser framing recent_requests gate connection held_requests v2_changes"),
    ),
    "client": Group(
        tuple(f"client/src/petstore_client/_{name}.py" for name in ("gate", "limits", "admission")),
        _tests("client/tests", "admission_rules gate_decisions limit_headers waiting shared_gate fork"),
    ),
    "store": Group(
        _server("store"),
        (*_STORE, *_tests("server/tests", "readiness console_orders console_health leaked_keys admin")),
        postgres=True,
    ),
    "engines": Group(
        _server("engines", "engines/sqlite", "engines/postgres"),
        (*_STORE, *_tests("server/tests", "postgres_* opening order_histories protected_files readiness cli_store")),
        postgres=True,
    ),
    "server": Group(
        _server("server", "fair_queue.py"),
        _tests(
            "server/tests",
            "connection* parser framing writer overload eager fair_queue held_requests list_turns v2_changes",
        ),
    ),
    "runtime": Group(  # without the sample data of the demo, which is chosen
        _server(*(f"runtime/{name}.py" for name in _RUNTIME.split())),
        _tests(
            "server/tests",
            "workers background backend readiness activation start admin* settings missing_store fallback "
            "cli_store bans redis postgres_opening process v2_process redis_processes opening console_health "
            "console_command cli_usage access_log gate documentation",
        ),
        postgres=True,
    ),
    "operations": Group(
        _server("operations"),
        _tests(
            "server/tests",
            "operations accounts audit keys leaked_keys cli_* console_* usage_history "
            "storage_maintenance redis_processes",
        ),
        postgres=True,
    ),
    "imports": Group(_server("imports"), _tests("server/tests", "import_* console_imports cli_orders")),
    "console": Group(_server("console", "console/pages"), _tests("server/tests", "console_* recent_requests")),
}
