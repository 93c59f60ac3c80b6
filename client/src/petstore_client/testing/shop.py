"""The fake service's operations that change single orders, one by one or in batches."""

import re
from collections.abc import Callable, Collection
from typing import Any

import httpx2
import msgspec

from petstore_client._shop import BODIES, MAX_BATCH_BYTES, MAX_OPERATIONS
from petstore_client._types import UNDECODABLE
from petstore_client.testing.changes import TAGS, change, etag_of, seen
from petstore_client.testing.faults import JSON, NO_STORE, Raw
from petstore_client.testing.store import Refusal, Store

IDENTIFIER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)

Operation = Callable[[Store, httpx2.Request, str, float], Raw]
"""Responds to a request, which names this identifier or "", at a time in Unix seconds."""


def changing(kind: str) -> Operation:
    """What responds to a request that carries out an operation of this kind on one order."""

    def respond(store: Store, request: httpx2.Request, number: str, now: float) -> Raw:
        operation = {"operation": kind, **_members(kind, request.content), **_conditions(request)}
        order, created = change(store, identifier(number), operation, now)
        if kind == "cancel":
            return Raw(204, {})
        body = msgspec.json.encode(seen(store, order))
        location = {"location": number} if created else {}
        headers = {**JSON, **location, "etag": etag_of(body), "cache-control": "no-store"}
        return Raw(201 if created else 200, headers, pieces=(body,))

    return respond


def identifier(number: str) -> int:
    """The identifier, written as the service demands (D4). Raises Refusal."""
    if not IDENTIFIER.fullmatch(number) or not _fits(int(number)):
        raise Refusal(404, "invalid_order_id", "An order identifier is a whole number of at most 64 bits.")
    return int(number)


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63


def _conditions(request: httpx2.Request) -> dict[str, Any]:
    """The conditions of a request, which version 1 does not have."""
    if request.url.path.startswith("/v1/"):
        return {}
    return {"ifMatch": request.headers.get("if-match"), "ifNoneMatch": request.headers.get("if-none-match")}


def _members(kind: str, content: bytes) -> dict[str, Any]:
    """What the body of a request is in an operation of a batch. Raises Refusal."""
    if kind in BODIES:
        return {BODIES[kind]: object_of(content)}
    return object_of(content, {"shipDate"}) if kind == "ship" and content else {}


def object_of(content: bytes, fields: Collection[str] = ()) -> dict[str, Any]:
    """The JSON object of a body; with `fields`, it has no others. Raises Refusal."""
    try:
        members = msgspec.json.decode(content, type=dict[str, Any])
    except UNDECODABLE as wrong:
        raise Refusal(400, "invalid_body", f"The body is not a JSON object: {wrong}.") from None
    if fields and not members.keys() <= set(fields):
        raise Refusal(400, "invalid_body", f"The body has other fields than {', '.join(fields)}.")
    return members


def batch(store: Store, request: httpx2.Request, _: str, now: float) -> Raw:
    """The outcome of each operation of a batch."""
    if len(request.content) > MAX_BATCH_BYTES:
        raise Refusal(413, "payload_too_large", "The body of a batch has at most 256 KiB.")
    operations = object_of(request.content, {"operations"}).get("operations")
    if not isinstance(operations, list) or not 1 <= len(operations) <= MAX_OPERATIONS:
        raise Refusal(400, "invalid_body", f"The body must have a list of 1 to {MAX_OPERATIONS} operations.")
    results = [_outcome(store, each, now) for each in operations]
    return Raw(200, NO_STORE, pieces=(msgspec.json.encode({"results": results}),))


def _outcome(store: Store, operation: object, now: float) -> dict[str, Any]:
    try:
        checked = _operation(operation)
        order, created = change(store, checked["orderId"], checked, now)
    except Refusal as refusal:
        fields = {"status": refusal.status, "code": refusal.code, "message": refusal.message}
        return fields if refusal.order_id is None else fields | {"orderId": refusal.order_id}
    if checked["operation"] == "cancel":
        return {"status": 204}
    return {"status": 201 if created else 200, "order": seen(store, order)}


def _operation(given: object) -> dict[str, Any]:
    """An operation of a batch. Raises Refusal."""
    kind = given.get("operation") if isinstance(given, dict) else None
    if not isinstance(given, dict) or kind not in ("put", "update", "ship", "complete", "cancel"):
        raise Refusal(400, "invalid_body", "An operation must be an object with a known 'operation'.")
    member = {**BODIES, "ship": "shipDate"}.get(kind)
    allowed = {"operation", "orderId", "ifMatch", *filter(None, [member]), *(["ifNoneMatch"] if kind == "put" else [])}
    known = given.keys() <= allowed and (kind not in BODIES or isinstance(given.get(member), dict))
    if_match = given.get("ifMatch")
    known = known and (if_match is None or (isinstance(if_match, str) and TAGS.fullmatch(if_match) is not None))
    known = known and given.get("ifNoneMatch") in (None, "*")
    if not known or type(given.get("orderId")) is not int or not _fits(given["orderId"]):
        raise Refusal(400, "invalid_body", f"The operation '{kind}' has a wrong field, or lacks one.")
    return given
