"""A service that responds as a real one cannot be made to: with each error, and with what a later release may add.

The first segment of a path says how: `/payload_too_large/v2/store/orders` is the error with this code, `/new/…` a
success with fields and values that no contract lists yet. Everything else is from the contract: headers, bodies.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from petstore_server.api.contracts import CONTRACTS, load_contract
from petstore_server.settings import read_settings
from testing.contract import error_examples, resolved
from testing.served_fake import Handler, serving

_ORDER = {
    "id": 7,
    "petId": 7,
    "shipDate": "2026-12-01T09:30:00.250000Z",
    "status": "returned",
    "createdAt": "2026-11-20T10:00:00.250000Z",
    "updatedAt": "2026-11-21T15:31:00.500000Z",
    "giftWrap": {"colour": "red"},
}
_WINDOW = {"name": "month", "limit": 60, "remaining": 59, "reset": 1795275060, "unit": "requests"}
_KEY = {"id": "key_3kTMd9QxBv1a", "scopes": ["orders:return"], "owner": "a program"}
NEW: Mapping[str, Any] = {
    "/store/orders": {"data": [_ORDER], "total": 1},
    "/store/orders/7": _ORDER,
    "/store/changes": {"data": [_ORDER], "next": "AoJp8zC0", "more": False, "lag": 0},
    "/usage": {"plan": "team", "orders": "region", "windows": [_WINDOW], "history": [], "key": _KEY, "region": "north"},
}
"""By path below the version."""
_HEADERS = ("X-Request-Id", "X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit", "Retry-After")


class Refusal(NamedTuple):
    """An error of a version: the status and the code, and the operations that have it."""

    version: str
    status: int
    code: str
    operations: list[str]


def contract(version: str) -> Mapping[str, Any]:
    """The contract of a version as a server without settings has it."""
    return load_contract(read_settings({}), version)


def operations(version: str) -> dict[str, Mapping[str, Any]]:
    """The operations of a version, by their names."""
    paths = contract(version)["paths"].values()
    return {operation["operationId"]: operation for item in paths for operation in item.values()}


def refusals() -> list[Refusal]:
    """Every error that an operation of a contract documents."""
    found: dict[tuple[str, int, str], list[str]] = {}
    for version in CONTRACTS:
        document = contract(version)
        for name, operation in operations(version).items():
            for status, response in operation["responses"].items():
                for content in resolved(response, document).get("content", {}).values() if status >= "400" else ():
                    for example in content["examples"].values():
                        code = resolved(example, document)["value"]["code"]
                        found.setdefault((version, int(status), code), []).append(name)
    return [Refusal(*error, names) for error, names in found.items()]


@contextmanager
def stub() -> Iterator[str]:
    """Serve on a free port of this host; yields the address, without the first segment of the path."""
    examples = {version: error_examples(contract(version)) for version in CONTRACTS}
    headers = {version: contract(version)["components"]["headers"] for version in CONTRACTS}

    class Stub(Handler):
        def respond(self) -> None:
            self.content()
            mode, version, *rest = self.path.partition("?")[0].split("/")[1:]
            value = NEW[f"/{'/'.join(rest)}"] if mode == "new" else examples[version][mode]["value"]
            body = json.dumps(value).encode()
            sent = [(name, str(headers[version][name]["example"])) for name in _HEADERS]
            sent += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
            self.send(value["status"] if mode != "new" else 200, sent, body)

    with serving(Stub) as port:
        yield f"http://127.0.0.1:{port}"
