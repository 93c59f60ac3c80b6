"""The calls: the server and the orders that they meet, the cases, and what a program that makes them has to print."""

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from generated_clients.stub import operations, refusals, stub
from petstore_server.api.contracts import CONTRACTS
from testing.process import EVERY_SCOPE, UNLIMITED, new_key, petstore, serving
from testing.webhook_messages import SETTINGS

CASES = (
    "ship dates",
    "ids above 2^53",
    "null",
    "204",
    "404",
    "409",
    "429 with Retry-After",
    "a reference with spaces and +",
    "times in queries",
    "a page of three",
    "one field changed",
    "an unknown status",
    "a new field",
    "every operation",
    "every error",
)

KNOWN: Mapping[tuple[str, str], str] = {
    ("typescript", "ids above 2^53"): "rounded",
    ("openapi-fetch", "ids above 2^53"): "rounded",
    ("java", "one field changed"): "cannot remove a value",
}
"""What no contract can mend, by tool and case; the page for partners says what to do."""

BIG = 2**53 + 1
ORDERS = (
    {"id": 1, "petId": 1, "quantity": 2, "shipDate": "2026-12-01T09:30:00Z", "reference": "Summer order + 2"},
    {"id": 2, "petId": 2, "quantity": 1, "shipDate": "2026-12-01T09:30:00.250000Z", "reference": "B"},
    {"id": 3},
    *({"id": number, "petId": 1, "quantity": 1} for number in (4, 5, 6)),
    *({"id": number, "petId": 77} for number in (11, 12, 13)),
    {"id": BIG, "quantity": BIG},
)
SHIPPED = ("4", "13")
ONE_A_MINUTE = ("--plan", "enterprise", "--per-minute", "1", "--per-day", "1000")


class CallsFailed(Exception):
    """A command failed, or did something else than it should."""


def call(name: str, run: Callable[[Mapping[str, str]], str]) -> Mapping[str, str]:
    """Run the program of a tool against a server and the stub; return the result of each case.

    That is `ok`, `known: …` for what is in KNOWN, or what is wrong.

    `run` gets variables of the environment: the addresses of the server and of the stub, a key, one that has one
    request a minute, and the errors to call for, as `version:status:code:operation`. It returns lines: `ok CASE`,
    `known CASE: what` and `failed CASE: reason`. Raises CallsFailed.
    """
    with tempfile.TemporaryDirectory() as folder, stub() as address:
        store = Path(folder) / "store.db"
        _fill(store)
        key, _ = new_key(store, "caller", UNLIMITED, EVERY_SCOPE)
        limited, _ = new_key(store, "limited", ONE_A_MINUTE)
        with serving(store, PETSTORE_ACCESS_LOG="all", **SETTINGS) as server:
            errors = " ".join(_errors())
            printed = run({"API": server.api, "KEY": key, "LIMITED": limited, "STUB": address, "ERRORS": errors})
            log = server.log.read_text()
    found = dict.fromkeys(CASES, "the program did not say")
    for result, case, reason in re.findall(r"^(ok|known|failed) ([^:\n]+)(?:: (.*))?$", printed, re.MULTILINE):
        is_known = result == "known" and KNOWN.get((name, case)) == reason
        found[case] = "ok" if result == "ok" else f"known: {reason}" if is_known else reason
    called = {line.get("operation") for line in map(json.loads, log.splitlines()) if line.get("status", 500) < 400}
    uncalled = sorted(_every_operation() - called)
    if uncalled:
        found["every operation"] = f"{', '.join(uncalled)} did not succeed"
    return found


def _fill(store: Path) -> None:
    lines = "".join(f"{json.dumps(order)}\n" for order in ORDERS)
    pet = '{"id":1,"name":"Rex","tag":"dog"}\n'
    for done in (
        petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines),
        petstore(store, "pets", "import", "-", "--format", "jsonl", text=pet),
        petstore(store, "orders", "ship", *SHIPPED),
    ):
        if done.returncode:
            raise CallsFailed(done.stderr)


def _every_operation() -> set[str]:
    """As the access log names them."""
    prefixes = {"v1": ""}
    return {f"{prefixes.get(version, f'{version}.')}{name}" for version in CONTRACTS for name in operations(version)}


def _errors() -> list[str]:
    """Each error, with the first of the operations that have it."""
    return [f"{each.version}:{each.status}:{each.code}:{each.operations[0]}" for each in refusals()]
