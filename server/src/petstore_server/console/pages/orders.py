"""Orders: the list with its filters, one order, and what can be done with one or several."""

import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.responses import RedirectResponse, Response, StreamingResponse

from petstore_server.console.forms import Form, changed_meanwhile, one_of, parse_position, position_links
from petstore_server.console.rendering import actions, duration, plural
from petstore_server.console.sources import Reading
from petstore_server.console.visit import Visit
from petstore_server.domain import errors
from petstore_server.domain import orders as transitions
from petstore_server.domain.lists import NO_OWNER, Filters, MatchCount, Page, PageQuery, Position, Sort, SortField
from petstore_server.domain.orders import Order, Status, TrackedOrder, check_reference, is_int64, parse_order_id
from petstore_server.domain.timestamps import file_stamp, format_timestamp, microseconds
from petstore_server.domain.transitions import Transition, changed_since, fields_changed_since, unless_changed, version
from petstore_server.operations import orders as use_cases
from petstore_server.operations.admin_port import CONSOLE_PATH
from petstore_server.operations.audit import order_entries
from petstore_server.store.records import read_order

_log = logging.getLogger(__name__)

_PAGE_SIZE = 50
_FIELDS = ("status", "petId", "reference", "account", "complete", "shipDateFrom", "shipDateTo", "sort")
_MAX_SELECTED = 1000
_MAX_COUNTED = 10_000
_COUNT_SECONDS = 0.15  # for which a page waits for the number of orders that match
_MAX_CHANGES = 50
_MAX_REASONS = 5  # orders that a notice explains by themselves
EXPORTS = {  # the label, the format, the ending and the type of each
    "csv": ("CSV", "spreadsheet", "csv", "text/csv; charset=utf-8"),
    "csv-bom": ("CSV for Excel", "spreadsheet with BOM", "csv", "text/csv; charset=utf-8"),
    "jsonl": ("JSONL", "jsonl", "jsonl", "application/jsonl"),
    "json": ("JSON", "json", "json", "application/json"),
}


async def list_orders(visit: Visit) -> Response:
    """The orders that match the filters, a page at a time, and the number of orders with each status."""
    form = visit.filters(*_FIELDS)
    given = form.given
    if order_id := visit.parameter("id").strip():
        try:
            return RedirectResponse(f"{CONSOLE_PATH}/orders/{parse_order_id(order_id)}", 303)
        except errors.InvalidOrderId as error:
            form.values["id"], form.errors["id"] = order_id, str(error)
    query = await _read_query(visit, form)
    page, count = Page((), None), Reading[MatchCount]()
    counts = await visit.sources.order_counts.get()
    if query is not None:
        page = await visit.require(visit.store.search.page(query))
        if query.filters != Filters():
            count = await visit.read(visit.store.search.count(query.filters, _MAX_COUNTED), _COUNT_SECONDS)
        elif counts.value is not None:
            count = Reading(MatchCount(sum(counts.value.values()), more=False), counts.age)
    return visit.page(
        "orders.html",
        400 if form.errors else 200,
        form=form,
        rows=await _rows(visit, page),
        sort=form["sort"] or "id",
        counts=counts,
        count=count,
        statuses=[(str(status), str(status).capitalize()) for status in Status],
        given=given,
        filtered=bool(given.keys() - {"sort"}),
        **position_links(given, "after", visit.query.get("after"), page.next),
        exports=[(name, label) for name, (label, *_) in EXPORTS.items()],
    )


async def _rows(visit: Visit, page: Page) -> list[tuple[Order, TrackedOrder]]:
    """The orders of a page with their owners."""
    owners = {owner for owner in page.owners if owner is not None}
    names = await visit.require(visit.store.accounts.names(owners)) if owners else {}
    return [
        (read_order(row.record, row.status, reference=row.reference, account=names.get(owner or NO_OWNER)), row)
        for row, owner in zip(page.orders, page.owners, strict=True)
    ]


async def show(visit: Visit, status: int = 200, form: Form | None = None) -> Response:
    """One order, and everything that happened to it. `form` has its corrections as they were submitted."""
    order_id = parse_order_id(visit.path["order"])
    tracked = await visit.require(visit.store.search.find(order_id))
    order = await visit.require(visit.store.orders.find(order_id))
    if form is not None and order.status is Status.CANCELLED:  # so that the page does not have the form
        raise errors.OrderAlreadyCancelled(order_id, " and can no longer be corrected")
    namesakes = await visit.require(use_cases.ids_with_reference(visit.store, str(order_id)))
    changes = await visit.read(order_entries(visit.store, order_id, limit=_MAX_CHANGES))
    has_fields = form is None and order.status is not Status.CANCELLED
    kept = await visit.kept(f"/orders/{order_id}/edit") if has_fields else None
    return visit.page(
        "order.html",
        status,
        form=form or kept or Form(_as_typed(order)),
        order=order,
        tracked=tracked,
        has_namesake=any(other != order_id for other in namesakes),  # the search box finds ids first
        allowed=[name for name, (_, transition) in _actions(visit).items() if transition.is_allowed(order)],
        changes=changes,
    )


def _as_typed(order: Order) -> list[tuple[str, str]]:
    """The fields of an order that can be corrected, as texts of the form."""
    values = {name: getattr(order, field) for name, (field, _) in _CORRECTED.items()}
    texts = {name: "" if value is None else str(value) for name, value in values.items()}
    return list((texts | {"complete": texts["complete"].lower()}).items())


async def edit(visit: Visit) -> Response:
    """Correct fields of an order, unless the same were changed meanwhile. What was not typed again stays."""
    order_id, form = parse_order_id(visit.path["order"]), await visit.form()
    names = [form["only"]] if form["only"] in _CORRECTED else list(_CORRECTED)
    typed = {name: form.read(name, partial(_CORRECTED[name][1], visit)) for name in names}
    if form.errors:
        return await show(visit, 400, form)
    mine = changed_since(form["seen"], typed)
    corrections = transitions.correct({_CORRECTED[name][0]: typed[name] for name in mine})
    try:
        await visit.store.orders.change(order_id, unless_changed(corrections, form["seen"], mine), visit.actor)
    except errors.ChangedMeanwhile:
        now = await visit.require(visit.store.orders.find(order_id))
        values, texts = now.fields(), dict(_as_typed(now))
        if any(values.get(name) != typed[name] for name in mine):
            for name in fields_changed_since(form["seen"], now) & mine:
                form.errors[name] = changed_meanwhile("value", texts[name])
            form.continue_from(version(now), texts, mine)
            return await show(visit, 409, form)
        mine = set()
    except (errors.ReferenceInUse, errors.OrderNotShipped) as error:
        form.errors["reference" if isinstance(error, errors.ReferenceInUse) else "complete"] = error.message
        return await show(visit, 409, form)
    except errors.OrderConflict as error:
        lines = "Nothing was changed.", await _explain(visit, order_id, error)
        return visit.redirect_with_notice(f"/orders/{order_id}", *lines, kind="bad")
    if not mine:
        line = f"Nothing was changed: order {order_id} has these values already."
        return visit.redirect_with_notice(f"/orders/{order_id}", line, kind="warn")
    return visit.redirect_with_notice(f"/orders/{order_id}", f"Corrected order {order_id}.")


async def change(action: str, visit: Visit) -> Response:
    """Ship, complete or cancel the selected orders; the last after asking."""
    form = await visit.form()
    ids = _selected(form)
    if action == "cancel" and not form["confirmed"]:
        return visit.page("cancel.html", ids=ids, form=form, back=_back(form))
    done, transition = _actions(visit)[action]
    outcomes = [outcome async for outcome in use_cases.change_orders(visit.store, ids, transition, visit.actor)]
    changed = sum(isinstance(outcome, Order) for _, outcome in outcomes)
    failed = [(order_id, outcome) for order_id, outcome in outcomes if isinstance(outcome, errors.DomainError)]
    refused = [refusal for refusal in failed if not isinstance(refusal[1], errors.ServiceUnavailable)]
    unusable = next((outcome for _, outcome in failed if isinstance(outcome, errors.ServiceUnavailable)), None)
    if unusable is not None and not changed:
        raise unusable
    lines: list[str | tuple[str, str]] = [f"{done} {plural(changed, 'order')}." if changed else "Nothing was changed."]
    lines += [await _explain(visit, *refusal) for refusal in refused[:_MAX_REASONS]]
    if len(refused) > _MAX_REASONS:
        more = plural(len(refused) - _MAX_REASONS, "more order")
        lines.append(f"Not changed for such reasons: {more}.")
    if unusable is not None:
        lines.append(f"{unusable.explanation} The list shows which of the other orders were changed.")
    kind = "ok" if changed == len(ids) else "warn" if changed else "bad"
    return visit.redirect_with_notice(_back(form), *lines, kind=kind)


async def export(visit: Visit) -> Response:
    """The orders that match the filters, with their status, as a file."""
    file_format = visit.query.get("format", "csv")
    if file_format not in EXPORTS:
        raise errors.InvalidInput(f"Orders are exported as {', '.join(EXPORTS)}.")
    form = visit.filters(*_FIELDS)
    query = await _read_query(visit, form)
    if query is None:
        raise errors.InvalidInput("Correct the filters of the list first; then export it.")
    _, written, ending, media_type = EXPORTS[file_format]
    name = f"orders-{file_stamp(visit.now)}.{ending}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    parts = use_cases.export_orders(visit.store, written, query.filters)
    first, _ = await anext(parts)  # before the response begins, so that a failure has its page
    if visit.request.method == "GET":  # HEAD exports nothing
        await _record_export(visit, {name: text for name, text in form.given.items() if name != "sort"})

    async def content() -> AsyncIterator[bytes]:
        yield first
        async for part, _ in parts:
            yield part

    return StreamingResponse(content(), headers=headers, media_type=media_type)


async def _record_export(visit: Visit, filters: dict[str, str]) -> None:
    """Record who exports which orders, if that is possible: an export is needed most when no change can be stored."""
    try:
        await visit.require(visit.store.audit.record_export(filters, visit.actor))
    except errors.ServiceUnavailable as error:
        _log.warning("export not recorded", extra={"actor": visit.actor.name, "reason": error.explanation})


def _actions(visit: Visit) -> dict[str, tuple[str, Transition[Order]]]:
    """What can be done with an order: the word for it when it was done, and the transition."""
    now = datetime.fromtimestamp(visit.now, UTC).replace(microsecond=0)
    return {
        "ship": ("Shipped", transitions.ship(now)),
        "cancel": ("Cancelled", transitions.CANCEL),
        "complete": ("Completed", transitions.COMPLETE),
    }


async def _explain(visit: Visit, order_id: int, error: errors.DomainError) -> tuple[str, str]:
    """A line about an order that was not changed: why, who changed it last, and the path of its page, if any."""
    text, link = error.message, ""
    if isinstance(error, errors.OrderConflict):
        link = f"/orders/{order_id}"
        found = (await visit.last_changes(f"order:{order_id}", 1)).value
        for entry in found.entries if found else ():
            actor = entry.actor.replace(":", " ", 1) + (f" of {entry.account}" if entry.account else "")
            text += f" {actions().get(entry.action, entry.action)}: {actor}, {duration(visit.now - entry.at)} ago."
    elif isinstance(error, errors.StatementFailed):
        text = f"Order {order_id} was not changed. {text}"
    return text, link


def _selected(form: Form) -> list[int]:
    ids = list(dict.fromkeys(parse_order_id(text) for text in form.all("order")))
    if not ids:
        raise errors.InvalidInput("No order is selected; go back and select at least one.")
    if len(ids) > _MAX_SELECTED:
        raise errors.InvalidInput(f"Select at most {_MAX_SELECTED:,} orders at a time.")
    return ids


def _back(form: Form) -> str:
    """The page from which the form was submitted: an order or the list, with its filters."""
    back = form["back"]
    return f"/orders{back}" if back.startswith(("?", "/")) and "//" not in back and back.isprintable() else "/orders"


async def _read_query(visit: Visit, form: Form) -> PageQuery | None:
    """The query for a page from its position on; None where a filter is wrong, which the form then says."""
    statuses = form.read("status", lambda text: frozenset({one_of(Status, text)} if text else ()))
    pet_id = form.read("petId", _pet_id)
    sort = form.read("sort", lambda text: Sort(one_of(SortField, text.removeprefix("-") or "id"), text.startswith("-")))
    starts, ends = (form.read(name, lambda text: _microseconds(visit, text)) for name in ("shipDateFrom", "shipDateTo"))
    owner = await _owner(visit, form)
    is_complete = {"true": True, "false": False}.get(form.values["complete"])
    if statuses is None or sort is None or form.errors:
        return None
    references = frozenset({form["reference"]} if form["reference"] else ())
    filters = Filters(statuses, pet_id, is_complete, starts, ends, references=references, owner=owner)
    return PageQuery(filters, sort, _PAGE_SIZE, parse_position(visit.parameter("after"), Position))


async def _owner(visit: Visit, form: Form) -> int | None:
    """The owner to filter by; None for any, and where there is no such account, which the form then says."""
    try:
        return await visit.require(use_cases.owner_named(visit.store, form["account"]))
    except errors.AccountNotFound as error:
        form.errors["account"] = error.message
        return None


def _number(text: str, name: str, example: int) -> int | None:
    if text and not is_int64(text):
        raise errors.InvalidInput(f"A {name} is a whole number in plain digits, such as {example}.")
    return int(text) if text else None


_pet_id, _quantity = partial(_number, name="pet id", example=42), partial(_number, name="quantity", example=2)


def _reference(text: str) -> str | None:
    try:
        return check_reference(text) if text else None
    except ValueError as error:
        raise errors.InvalidInput(f"The reference {error}.") from None


def _ship_date(visit: Visit, text: str) -> str | None:
    at = visit.when(text, past=False)
    return None if at is None else format_timestamp(at)


_CORRECTED: dict[str, tuple[str, Callable[[Visit, str], Any]]] = {
    "petId": ("pet_id", lambda _, text: _pet_id(text)),
    "quantity": ("quantity", lambda _, text: _quantity(text)),
    "shipDate": ("ship_date", _ship_date),
    "reference": ("reference", lambda _, text: _reference(text)),
    "complete": ("complete", lambda _, text: {"true": True, "false": False}.get(text)),
}
"""The fields of an order that can be corrected: their names in Order, and how what was typed is read."""


def _microseconds(visit: Visit, text: str) -> int | None:
    at = visit.when(text)
    return microseconds(at) if at else None
