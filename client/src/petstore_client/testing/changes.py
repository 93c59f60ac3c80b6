"""How the fake service changes single orders: transitions, codes and preconditions, as the real service has them."""

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2
import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from petstore_client import v2
from petstore_client._types import Timestamp
from petstore_client.testing.faults import JSON, Raw
from petstore_client.testing.store import Refusal, Store

_NOTHING_LEFT = {"order_already_shipped", "order_already_cancelled", "order_already_complete"}
_REVALIDATED = {"cache-control": "private, no-cache", "vary": "Accept-Encoding, Authorization"}
TAGS = re.compile(r'\*|(?:W/)?"([!#-~]*)"(?:[ \t]*,[ \t]*(?:W/)?"[!#-~]*")*', re.ASCII)


FieldsT = TypeVar("FieldsT", bound="Fields")


class Fields(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A strict JSON object."""


class _Shipment(Fields):
    ship_date: Timestamp | None = None


class _Corrections(Fields):
    pet_id: int | UnsetType | None = UNSET
    quantity: int | UnsetType | None = UNSET
    ship_date: Timestamp | UnsetType | None = UNSET
    complete: bool | UnsetType | None = UNSET
    reference: str | UnsetType | None = UNSET


class _Whole(Fields):
    pet_id: int | None = None
    quantity: int | None = None
    ship_date: Timestamp | None = None
    complete: bool | None = None
    status: v2.Status | None = None
    reference: str | None = None
    account: str | None = None


Before = v2.Order | None
Apply = Callable[[v2.Order], v2.Order]


def change(store: Store, number: int, operation: dict[str, Any], now: float) -> tuple[v2.Order, bool]:
    """Carry out an operation, as `batchOrders` takes it, on one order; return the order, and whether it is new.

    What would change nothing comes before the precondition, and everything else after it. Raises Refusal.
    """
    kind, known = operation["operation"], store.visible.get(number)
    if_match = operation.get("ifMatch")
    apply = _APPLY[kind](store, operation, now)
    if if_match is not None and not TAGS.fullmatch(if_match):
        raise Refusal(400, "invalid_parameter", "'If-Match' must be an ETag of getOrder in quotes, or *.")
    if kind == "put" and operation.get("ifNoneMatch") not in (None, "*"):
        raise Refusal(400, "invalid_parameter", "'If-None-Match' must be *.")
    if kind == "put" and operation.get("ifNoneMatch") and known:
        raise Refusal(412, "precondition_failed", "Nothing was changed: the order exists already.")
    try:
        creates = kind == "put" and known is None and store.sees == "all"
        order = apply(_new(number, store) if creates else existing(store, number))
        if order == known:
            return order, False
        _check_match(store, known, if_match)
        _check_reference(store, order, known)
    except Refusal as refusal:
        if refusal.code not in _NOTHING_LEFT:
            _check_match(store, known, if_match)
        raise
    return store.write(order, now), known is None


def seen(store: Store, order: v2.Order) -> v2.Order:
    """The order as the key gets it: only one that manages all orders sees the account."""
    return order if "orders:manage" in store.key.scopes and store.sees == "all" else replace(order, account=None)


def etag_of(body: bytes) -> str:
    """The ETag of a response."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def represent(request: httpx2.Request, content: object) -> Raw:
    """200 with the content and its ETag, or 304."""
    body = msgspec.json.encode(content)
    etag = etag_of(body)
    if request.headers.get("if-none-match") == etag:
        return Raw(304, {"etag": etag, **_REVALIDATED})
    return Raw(200, {**JSON, "etag": etag, **_REVALIDATED}, pieces=(body,))


def first_with(store: Store, reference: str | None, account: str | None, but: int | None = None) -> int | None:
    """The first order of this owner that has the reference; None without a reference."""
    if reference is None:
        return None
    found = (each for each in store.tracked.values() if each.reference == reference and each.id != but)
    return min((each.id for each in found if each.account == account), default=None)


def _new(number: int, store: Store) -> v2.Order:
    if store.assigned_ids_from is not None and number >= store.assigned_ids_from:
        raise Refusal(409, "identifier_reserved", f"There is no order {number}, and the service assigns its number.")
    return v2.Order(id=number, status="pending", created_at=store.last_change, updated_at=store.last_change)


def existing(store: Store, number: int) -> v2.Order:
    """The order with this identifier. Raises Refusal."""
    if number not in store.visible:
        raise Refusal(404, "order_not_found", f"There is no order {number}.")
    return store.visible[number]


def _put(store: Store, operation: dict[str, Any], now: float) -> Apply:
    whole = given(operation["order"], _Whole)
    if whole["account"] not in (None, *(store.accounts if store.sees == "all" else store.accounts[:1])):
        raise Refusal(400, "invalid_body", "The field 'account' does not name an account of this store.")
    if store.sees == "own":
        whole["account"] = store.accounts[0]
    whole |= {"status": whole["status"] or "pending", "ship_date": in_utc(whole["ship_date"])}

    def apply(order: v2.Order) -> v2.Order:
        put = replace(order, **{**whole, "account": whole["account"] or order.account})
        if order.id in store.tracked and put != order:
            _check_replaceable(order, put, placed=order.id in store.placed_ids and whole["account"] is None)
        return put

    return apply


def _check_replaceable(order: v2.Order, put: v2.Order, *, placed: bool) -> None:
    """Raise Refusal unless the order may become the one that is put; `placed`: by an account that is not named."""
    mismatch = Refusal(409, "account_mismatch", f"Order {order.id} belongs to an account that is not named.")
    if order.account not in (None, put.account):
        raise mismatch
    if replace(order, account=put.account) == put:
        return
    if order.status != "pending":
        raise _already(order, "replaced")
    if placed:
        raise mismatch


def _update(store: Store, operation: dict[str, Any], now: float) -> Apply:
    values = given(operation["changes"], _Corrections)
    if "ship_date" in values:
        values["ship_date"] = in_utc(values["ship_date"])

    def apply(order: v2.Order) -> v2.Order:
        corrected = replace(order, **values)
        if corrected == order:
            return order
        if order.status == "cancelled" and corrected != replace(order, reference=None):
            raise _already(order, "corrected")
        if corrected.complete and not order.complete and order.status != "shipped":
            raise _not_shipped(order)
        return corrected

    return apply


def _ship(store: Store, operation: dict[str, Any], now: float) -> Apply:
    named = read({"shipDate": operation.get("shipDate")}, _Shipment).ship_date
    ship_date = in_utc(named) or datetime.fromtimestamp(int(now), UTC)
    return lambda order: _pending_to("shipped", order, ship_date=ship_date)


def _complete(store: Store, operation: dict[str, Any], now: float) -> Apply:
    def apply(order: v2.Order) -> v2.Order:
        if order.status == "cancelled":
            raise _already(order, "completed")
        if order.status != "shipped":
            raise _not_shipped(order)
        if order.complete:
            raise Refusal(409, "order_already_complete", f"Order {order.id} is already complete.")
        return replace(order, complete=True)

    return apply


def _cancel(store: Store, operation: dict[str, Any], now: float) -> Apply:
    store.require_scope("orders:cancel")
    return lambda order: _pending_to("cancelled", order)


def _pending_to(status: str, order: v2.Order, **values: Any) -> v2.Order:
    if order.status != "pending":
        raise _already(order, status)
    return replace(order, status=status, **values)


_APPLY = {"put": _put, "update": _update, "ship": _ship, "complete": _complete, "cancel": _cancel}


def read(members: object, kind: type[FieldsT]) -> FieldsT:
    """A strict JSON object, as a struct of this kind. Raises Refusal."""
    try:
        return msgspec.convert(members, type=kind)
    except msgspec.ValidationError as wrong:
        raise Refusal(400, "invalid_body", f"The body is not valid: {wrong}.") from None


def given(members: object, kind: type[Fields]) -> dict[str, Any]:
    """The fields of a strict JSON object that are not UNSET. Raises Refusal."""
    return {name: value for name, value in asdict(read(members, kind)).items() if value is not UNSET}


def in_utc(date: datetime | None) -> datetime | None:
    """The same time with the offset of UTC."""
    return date and date.astimezone(UTC)


def _already(order: v2.Order, what: str) -> Refusal:
    return Refusal(409, f"order_already_{order.status}", f"Order {order.id} is {order.status}, and cannot be {what}.")


def _not_shipped(order: v2.Order) -> Refusal:
    message = f"Order {order.id} is {order.status}; only a shipped order can be completed."
    return Refusal(409, "order_not_shipped", message)


def _check_match(store: Store, known: Before, if_match: str | None) -> None:
    if if_match is None:
        return
    tags = {tag.removesuffix("-gzip") for tag in re.findall(r'"([^"]*)"', if_match)}
    if known is None or (if_match != "*" and etag_of(msgspec.json.encode(seen(store, known))).strip('"') not in tags):
        raise Refusal(412, "precondition_failed", "Nothing was changed: the order is not as If-Match says.")


def _check_reference(store: Store, order: v2.Order, known: Before) -> None:
    if known and (known.reference, known.account) == (order.reference, order.account):
        return
    first = first_with(store, order.reference, order.account, order.id)
    if first is not None:
        raise Refusal(409, "reference_in_use", f"Order {first} already has this reference.", first)
