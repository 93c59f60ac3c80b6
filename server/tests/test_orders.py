"""Orders: identifiers, the record, transitions, and what an import does (D4–D7)."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain import errors
from petstore_server.domain.imports import ImportOutcome, evaluate_import, kept_of
from petstore_server.domain.orders import (
    CANCEL,
    COMPLETE,
    INT64_MAX,
    INT64_MIN,
    MAX_ASSIGNED_ID,
    Order,
    Status,
    TrackedOrder,
    check_reference,
    order_from_fields,
    parse_order_id,
    ship,
)
from petstore_server.domain.texts import looks_like_key
from petstore_server.domain.timestamps import canonical_timestamp
from petstore_server.store.records import order_problem, order_row, read_order
from testing.search_model import instant

INT64 = st.integers(INT64_MIN, INT64_MAX)
TIMESTAMPS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)).map(  # noqa: DTZ001 - naive on purpose
    lambda timestamp: timestamp.isoformat() + "Z"
)
REFERENCES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=64)
ORDERS = st.builds(
    Order,
    INT64,
    st.none() | INT64,
    st.none() | INT64,
    st.none() | TIMESTAMPS.map(canonical_timestamp),
    st.none() | st.booleans(),
    st.sampled_from(Status),
    st.none() | REFERENCES.filter(lambda text: not looks_like_key(text)),
    account=st.none() | st.sampled_from(["acme", "Zoo & Söhne"]),
)
NO_TIMESTAMP = "is not an RFC 3339 date-time with an offset, such as 2026-11-01T10:00:00Z."
FIELDS = "the fields are id, petId, quantity, shipDate, complete, status, reference, account."
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@given(INT64)
def test_every_int64_in_plain_digits_is_an_identifier(number: int) -> None:
    assert number == parse_order_id(str(number))


@pytest.mark.parametrize(
    "text",
    [
        *("", "abc", "1.0", "+1", "1_000", " 1", "1 ", "007", "-0", "--1", "-", "1e3", "0x1", "١", "²", "1\n"),
        *(str(2**63), str(-(2**63) - 1), "9" * 19, "9" * 5000),
    ],
)
def test_any_other_form_is_not_an_identifier(text: str) -> None:
    with pytest.raises(errors.InvalidOrderId):
        parse_order_id(text)


def test_assigned_identifiers_are_integers_that_javascript_does_not_round() -> None:
    assert MAX_ASSIGNED_ID == 2**53 - 1


@given(ORDERS)
def test_a_record_holds_the_specs_fields_without_nulls_and_can_be_read_back(order: Order) -> None:
    record = json.loads(order.record())
    assert record.keys() <= {"id", "petId", "quantity", "shipDate", "complete"}
    assert None not in record.values()
    assert order == read_order(order.record(), order.status, order.id, order.reference, order.account)
    assert order == order_from_fields(order.fields())


@given(ORDERS)
def test_a_row_has_what_pages_filter_and_sort_by_and_the_record(order: Order) -> None:
    row = order_row(order)
    assert (order.id, order.status, order.pet_id, int(order.complete is True)) == row[:4]
    assert (instant(order.ship_date), order.reference, order.record()) == row[4:7]
    assert order_problem(row[:-1]) is None


def test_a_row_that_the_service_would_not_write_is_a_problem() -> None:
    order = Order(1, 2, 3, "2026-11-01T10:00:00Z", True, reference="A 1")
    row = order_row(order)[:-1]
    wrong = [(0, 2), (1, "lost"), (2, 3), (3, 0), (4, None), (5, " A")]
    wrong += [(6, record) for record in (row[6].replace(":", ": "), row[6].replace("T", "t"), "{", "[]")]
    for column, value in wrong:
        changed = (*row[:column], value, *row[column + 1 :])
        problem = order_problem(changed)
        assert problem is not None
        assert f"Order {changed[0]} " in problem


@pytest.mark.parametrize(
    "text",
    ["", " a", "a ", "a\nb", "a\0", "\u00a0", "a\u200bb", "\ud800", "a" * 65, "pso_live_" + "a" * 30, "PSO-test-1"],
)
def test_a_text_that_is_not_a_reference_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidField, match="reference"):
        order_from_fields({"id": 1, "reference": text})
    with pytest.raises(ValueError, match="printable"):
        check_reference(text)


INVISIBLE = ["\u3164", "\uffa0", "\u2800", "\u2764\ufe0f", "a\u034f", "\u115fa", "\u17b4", "a\u180b", "a\U000e0100"]


@pytest.mark.parametrize("text", INVISIBLE)
def test_a_reference_that_looks_empty_or_like_another_is_refused_but_found_where_it_is_stored(text: str) -> None:
    with pytest.raises(errors.InvalidField, match="none invisible"):
        order_from_fields({"id": 1, "reference": text})
    assert text == check_reference(text, stored=True)
    assert order_problem(order_row(Order(1, reference=text))[:-1]) is None


@pytest.mark.parametrize("text", ["a", "a b", '"', "\\", "Größe 5", "\N{CAT FACE}" * 64, "=1+1"])
def test_a_reference_is_one_line_of_printable_characters(text: str) -> None:
    assert text == check_reference(text) == order_from_fields({"id": 1, "reference": text}).reference
    assert text == json.loads(TrackedOrder('{"id":1}', Status.PENDING, 0, 0, text).text())["reference"]


@pytest.mark.parametrize(
    "record",
    ["", "{", "null", "[]", '{"petId":1}', '{"id":3}', '{"id":1,"status":"pending"}', None, 1, b"\xff"],
)
def test_a_damaged_record_is_named_with_its_order(record: Any) -> None:
    """In a damaged file, a column may have any type."""
    with pytest.raises(errors.DamagedRecord, match="order 1 "):
        read_order(record, "pending", 1)


def outcome(order: Order, apply: Callable[[Order], Order]) -> Order | str:
    try:
        return apply(order)
    except errors.OrderConflict as error:
        return error.code


def test_only_a_pending_order_can_be_cancelled() -> None:
    results = [outcome(Order(7, status=status), CANCEL.apply) for status in Status]
    assert [Order(7, status=Status.CANCELLED), "order_already_shipped", "order_already_cancelled"] == results


@given(ORDERS)
def test_cancelling_changes_no_byte_of_the_record(order: Order) -> None:
    after = outcome(order, CANCEL.apply)
    assert not isinstance(after, Order) or order.record() == after.record()


def test_only_a_pending_order_ships_and_gets_its_ship_date() -> None:
    results = [outcome(Order(7, complete=False, status=status), ship(AT).apply) for status in Status]
    shipped = Order(7, ship_date="2026-11-20T12:00:00Z", complete=False, status=Status.SHIPPED)
    assert [shipped, "order_already_shipped", "order_already_cancelled"] == results


def test_only_a_shipped_order_can_be_completed_and_only_once() -> None:
    results = [outcome(Order(7, status=status), COMPLETE.apply) for status in Status]
    complete = Order(7, complete=True, status=Status.SHIPPED)
    assert ["order_not_shipped", complete, "order_already_cancelled"] == results
    assert "order_already_complete" == outcome(complete, COMPLETE.apply)
    assert ["order.cancel", "order.ship", "order.complete"] == [each.action for each in (CANCEL, ship(AT), COMPLETE)]


PENDING, CHANGED = Order(1, quantity=1), Order(1, quantity=2)
SHIPPED = Order(1, quantity=1, status=Status.SHIPPED)


def of(account: str, order: Order) -> Order:
    """The order with this owner."""
    return order._replace(account=account)


@pytest.mark.parametrize(
    ("existing", "incoming", "expected", "of_placed"),
    [
        (None, PENDING, ImportOutcome.CREATED, ImportOutcome.CREATED),
        (PENDING, PENDING, ImportOutcome.UNCHANGED, ImportOutcome.UNCHANGED),
        (PENDING, CHANGED, ImportOutcome.REPLACED, ImportOutcome.PROTECTED),
        (SHIPPED, SHIPPED, ImportOutcome.UNCHANGED, ImportOutcome.UNCHANGED),
        (SHIPPED, PENDING, ImportOutcome.REJECTED, ImportOutcome.REJECTED),
        (PENDING, of("acme", PENDING), ImportOutcome.REPLACED, ImportOutcome.REPLACED),
        (SHIPPED, of("acme", SHIPPED), ImportOutcome.REPLACED, ImportOutcome.REPLACED),
        (SHIPPED, of("acme", PENDING), ImportOutcome.REJECTED, ImportOutcome.REJECTED),
        (of("acme", SHIPPED), of("zoo", SHIPPED), ImportOutcome.OTHER_OWNER, ImportOutcome.OTHER_OWNER),
        (of("acme", PENDING), of("zoo", CHANGED), ImportOutcome.OTHER_OWNER, ImportOutcome.OTHER_OWNER),
        (of("acme", PENDING), of("acme", CHANGED), ImportOutcome.REPLACED, ImportOutcome.PROTECTED),
    ],
)
def test_an_import_creates_keeps_replaces_or_rejects_an_order(
    existing: Order | None, incoming: Order, expected: ImportOutcome, of_placed: ImportOutcome
) -> None:
    assert expected == evaluate_import(existing, incoming)
    assert of_placed == evaluate_import(existing, incoming, placed=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": None}, "'id' is missing; every order needs one."),
        ({"id": "1"}, "id '1' is not a whole number in plain digits."),
        ({"id": 1.0}, "id '1.0' is not a whole number."),
        ({"id": 2**63}, "id '9223372036854775808' does not fit a signed 64-bit integer."),
        ({"id": 1, "quantity": -(2**63) - 1}, "quantity '-9223372036854775809' does not fit a signed 64-bit integer."),
        ({"id": 1, "shipDate": 5}, "shipDate '5' is not text."),
        ({"id": 1, "shipDate": "2026-11-01"}, f"shipDate '2026-11-01' {NO_TIMESTAMP}"),
        ({"id": 1, "complete": "true"}, "complete 'true' is neither true nor false."),
        ({"id": 1, "status": "lost"}, "status 'lost' is none of pending, shipped, cancelled."),
        ({"id": 1, "status": ["pending"]}, """status '["pending"]' is none of pending, shipped, cancelled."""),
        ({"id": 1, "colour": "red", "size": 1}, f"'colour' is not a field of an order; {FIELDS}"),
        ({"id": 1, "reference": 1}, "reference '1' is not text."),
        ({"id": 1, "account": 1}, "account '1' is not text."),
        ({"id": 1, "account": ""}, "account '' is not the name of an account."),
    ],
)
def test_a_bad_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidField) as caught:
        order_from_fields(fields)
    assert message == caught.value.message
    assert caught.value.field in message


def test_an_import_that_names_no_owner_keeps_the_owner() -> None:
    assert CHANGED == kept_of(None, CHANGED) == kept_of(PENDING, CHANGED)
    assert of("acme", CHANGED) == kept_of(of("acme", PENDING), CHANGED)
    assert of("zoo", CHANGED) == kept_of(of("acme", PENDING), of("zoo", CHANGED))


def test_null_and_absent_fields_are_the_same() -> None:
    assert Order(1) == order_from_fields({"id": 1, "petId": None, "shipDate": None, "complete": None, "status": None})
