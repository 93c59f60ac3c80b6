"""The filters of the list of orders: from a URL to a query, and positions in links."""

from collections.abc import Mapping
from datetime import UTC, datetime

from petstore_server.console.forms import FormState
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.orders import Status, is_int64
from petstore_server.domain.search import Filters, Position, Query, Sort, SortField, microseconds
from petstore_server.domain.timestamps import parse_when

PAGE_SIZE = 50
FIELDS = ("status", "petId", "complete", "shipDateFrom", "shipDateTo", "sort")
SORTS = (
    ("id", "Id, ascending"),
    ("-id", "Id, descending"),
    ("shipDate", "Ship date, earliest first"),
    ("-shipDate", "Ship date, latest first"),
    ("-updatedAt", "Last changed first"),
    ("updatedAt", "Last changed last"),
)
STATUSES = [("", "Any"), *((str(status), str(status).capitalize()) for status in Status)]
COMPLETE_CHOICES = (("", "Any"), ("true", "Yes"), ("false", "No"))


def read_form(query: Mapping[str, str]) -> FormState:
    """The filters as they were typed."""
    return FormState({name: query.get(name, "").strip() for name in FIELDS})


def read_query(form: FormState, after: str, now: float) -> Query | None:
    """The query for a page from a position on; None where a filter is wrong, which the form then says."""
    statuses, pet_id = form.read("status", _statuses), form.read("petId", _pet_id)
    sort = form.read("sort", _sort)
    starts = form.read("shipDateFrom", lambda text: _when(text, now))
    ends = form.read("shipDateTo", lambda text: _when(text, now))
    complete_text = form.values["complete"]
    is_complete = {"true": True, "false": False}.get(complete_text)
    if statuses is None or sort is None or not form.is_right:
        return None
    filters = Filters(statuses, pet_id, is_complete, starts, ends)
    return Query(filters, sort, PAGE_SIZE, parse_position(after))


def _statuses(text: str) -> frozenset[Status]:
    if text and text not in list(Status):
        raise InvalidInput(f"Choose one of {', '.join(Status)}.")
    return frozenset({Status(text)}) if text else frozenset()


def _pet_id(text: str) -> int | None:
    if text and not is_int64(text):
        raise InvalidInput("A pet id is a whole number in plain digits, such as 42.")
    return int(text) if text else None


def _sort(text: str) -> Sort:
    if text and text not in dict(SORTS):
        raise InvalidInput("Choose one of the given orders.")
    field = text.removeprefix("-") or "id"
    return Sort(SortField(field), text.startswith("-"))


def _when(text: str, now: float) -> int | None:
    return microseconds(parse_when(text, datetime.fromtimestamp(now, UTC), past=True)) if text else None


def position_text(position: Position) -> str:
    """A position for a link."""
    return f"{'' if position.value is None else position.value}.{position.id}"


def parse_position(text: str) -> Position | None:
    """A position from a link of the console; an invalid one starts from the beginning."""
    value, _, order_id = text.partition(".")
    if not is_int64(order_id) or (value and not is_int64(value)):
        return None
    return Position(int(value) if value else None, int(order_id))
