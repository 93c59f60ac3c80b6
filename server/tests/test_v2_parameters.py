"""Parameters, cursors and bodies of version 2: what is read, and what is refused with which message (D20)."""

import json
from collections import Counter
from contextlib import nullcontext, suppress
from itertools import product
from typing import Any, get_type_hints
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.api.errors import InvalidBody, InvalidParameter, UnsupportedMediaType
from petstore_server.api.v2.bodies import check_media_type, read_new_order
from petstore_server.api.v2.input import (
    GET_USAGE,
    IDEMPOTENCY_KEY,
    LIST_ORDERS,
    NO_PARAMETERS,
    Parameters,
)
from petstore_server.api.v2.orders import read_listing
from petstore_server.domain.errors import InvalidCursor
from petstore_server.domain.lists import Filters, Position, Sort, SortField, query_digest
from petstore_server.domain.orders import INT64_MAX, INT64_MIN, REFERENCE_FORM, Status
from petstore_server.domain.tokens import Cursors

INT64 = st.integers(INT64_MIN, INT64_MAX)
SORTS = st.builds(Sort, st.sampled_from(SortField), st.booleans())
POSITIONS = st.builds(Position, st.none() | INT64, INT64)
FILTERS = st.builds(
    Filters,
    st.frozensets(st.sampled_from(Status)),
    st.none() | INT64,
    st.none() | st.booleans(),
    st.none() | INT64,
    st.none() | INT64,
    st.none() | INT64,
)


def refusal(parameters: Parameters, query: str) -> str:
    with pytest.raises(InvalidParameter) as raised:
        parameters.read(query.encode())
    return raised.value.message


def test_without_a_query_every_parameter_has_its_default() -> None:
    values = LIST_ORDERS.read(b"")
    assert {"sort": Sort(SortField.ID), "limit": 100} == {
        name: value for name, value in values.items() if value is not None
    }
    assert {"granularity": "hour", "from": None, "to": None} == GET_USAGE.read(b"")
    assert {} == NO_PARAMETERS.read(b"")


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        ("status=pending&status=shipped&status=pending", "status", ["pending", "shipped", "pending"]),
        ("petId=-9223372036854775808", "petId", INT64_MIN),
        ("pet%49d=%31%32", "petId", 12),
        ("complete=true", "complete", True),
        ("complete=false", "complete", False),
        ("limit=1", "limit", 1),
        ("&&limit=1000&", "limit", 1000),
        ("sort=-updatedAt", "sort", Sort(SortField.UPDATED_AT, descending=True)),
        ("shipDateFrom=1970-01-01T00:00:01Z&shipDateTo=1970-01-01T00:00:01Z", "shipDateTo", 1_000_000),
        ("cursor=%C3%A9", "cursor", "é"),
        ("reference=Summer+order+%2B+2", "reference", ["Summer order + 2"]),
        ("reference=a%20b&reference=a+b&reference=a%2Bb", "reference", ["a b", "a b", "a+b"]),
        *[
            (f"updatedFrom=1970-01-01T{time}", "updatedFrom", microseconds)
            for time, microseconds in (
                ("00:00:01.000001Z", 1_000_001),
                ("01:00:00%2B01:00", 0),
                ("01:00:00+01:00", 0),
                ("00:00:01-0130", 5_401_000_000),
                ("00:00:00.123456999+0000", 123_456),
                ("00:00:00.1234560000000Z", 123_456),
            )
        ],
        ("updatedFrom=1969-12-31T23:59:59.999999999Z", "updatedFrom", -1),
    ],
)
def test_a_value_in_an_allowed_form_is_read(query: str, name: str, value: object) -> None:
    assert value == LIST_ORDERS.read(query.encode())[name]


PET = "'petId' must be a whole number in plain digits that fits 64 bits."
UPDATED = (
    "'updatedFrom' must be an RFC 3339 date-time with an offset, in the years 1 to 9999 in UTC, such as "
    "2026-11-01T10:00:00Z."
)
REFERENCE = f"'reference' must be {REFERENCE_FORM}; repeat the parameter for several."
STATUS = "'status' must be one of pending, shipped, cancelled; repeat the parameter for several."
UNKNOWN = (
    "The query contains '{}', which is not a parameter of this operation; they are status, petId, complete, "
    "shipDateFrom, shipDateTo, updatedFrom, reference, sort, limit, cursor."
)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        *[(f"petId={quote(value)}", PET) for value in ("", "1.0", "+1", "01", "-0", "1_000", " 1", str(2**63), "½")],
        *[(f"updatedFrom={value}", UPDATED) for value in ("2027-01-01", "2027-01-01T00:00:00", "1795268137", "now")],
        *[(f"updatedFrom={value}", UPDATED) for value in ("2027-02-30T00:00:00Z", "2027-01-01T0000%2B0000")],
        *[
            (f"updatedFrom=2027-01-01T00:00:00{offset}", UPDATED)
            for offset in ("%2B000", "%2B00000", "%2B0060", "%2B2400", ".Z", "UTC")
        ],
        *[(f"reference={text}", REFERENCE) for text in ("", "%20a", "a" * 65)],
        *[(f"status{value}", STATUS) for value in ("", "=Pending", "=pending,shipped", "=pending&status=")],
        *[(f"complete={value}", "'complete' must be true or false.") for value in ("1", "True")],
        *[(f"limit={value}", "'limit' must be a whole number from 1 to 1000.") for value in (0, 1001)],
        ("limit=1&limit=1", "'limit' is given more than once; give it once."),
        ("sort=petId", "'sort' must be one of id, -id, shipDate, -shipDate, updatedAt, -updatedAt."),
        ("cursor=", "'cursor' must be the nextCursor of a page."),
        (
            "shipDateFrom=2027-01-02T00:00:00Z&shipDateTo=2027-01-01T00:00:00Z",
            "'shipDateFrom' is after 'shipDateTo'; swap the two or leave one out.",
        ),
        ("petId=%ff", "The query is not percent-encoded UTF-8; encode each name and value."),
        *[(f"{name}=3", UNKNOWN.format(name)) for name in ("pet_id", "page[size]", "$filter", "_")],
        ("status%5B%5D=3", UNKNOWN.format("status[]")),
    ],
)
def test_the_message_names_the_parameter_and_what_is_allowed(query: str, message: str) -> None:
    assert message == refusal(LIST_ORDERS, query)


def test_an_unknown_name_is_shown_only_if_it_is_short_and_plain() -> None:
    for name in ("pso_live_" + "a" * 33, "%22%3Cscript%3E", "", "=x"):
        message = refusal(NO_PARAMETERS, f"{name}=1")
        assert "The query contains a name, which is not a parameter of this operation; it has none." == message


@given(st.text(max_size=60) | st.builds("{}={}".format, st.sampled_from(sorted(LIST_ORDERS.all)), st.text(max_size=30)))
def test_any_other_query_is_refused_without_a_fault(query: str) -> None:
    for text in (query.encode("ascii", "ignore"), quote(query, safe="=&").encode()):
        with suppress(InvalidParameter):
            assert LIST_ORDERS.all.keys() == LIST_ORDERS.read(text).keys()


@given(POSITIONS, FILTERS, SORTS, FILTERS, SORTS)
def test_a_cursor_is_read_in_every_process_for_its_query_and_its_store_only(
    position: Position, filters: Filters, sort: Sort, other_filters: Filters, other_sort: Sort
) -> None:
    query = query_digest(filters, sort)
    text = Cursors("store", "one").encode(position, query)
    assert len(text) <= 256
    assert quote(text, safe="") == text
    assert position == Cursors("store", "one").decode(text, query)
    others = [(Cursors("another store", "one"), query), (Cursors("store", "two"), query)]  # two: after a restore
    if (filters, sort) != (other_filters, other_sort):
        others.append((Cursors("store", "one"), query_digest(other_filters, other_sort)))
    for cursors, asked in others:
        with pytest.raises(InvalidCursor):
            cursors.decode(text, asked)


VALUES: dict[Any, list[Any]] = {
    frozenset[Status]: [frozenset({status}) for status in Status],
    frozenset[str]: [frozenset({text}) for text in ("5", "shipped", "pending", "True")],
    int | None: [0, 1, 5],
    bool | None: [False, True],
}


def test_a_cursor_is_bound_to_each_filter() -> None:
    given = [
        Filters()._replace(**{name: value}) for name, kind in get_type_hints(Filters).items() for value in VALUES[kind]
    ]
    digests = Counter(query_digest(filters, Sort()) for filters in (Filters(), *given))
    assert [] == [each for each in given if digests[query_digest(each, Sort())] > 1], "others have the same digest"


@given(POSITIONS, st.integers(0, 39), st.characters())
def test_an_altered_cursor_is_refused(position: Position, index: int, character: str) -> None:
    cursors, query = Cursors("store", "one"), query_digest(Filters(), Sort())
    text = cursors.encode(position, query)
    altered = text[:index] + character + text[index + 1 :]
    if altered != text:
        with pytest.raises(InvalidCursor):
            cursors.decode(altered, query)
    for other in (text[:-1], text + "A", text + "=", "", text * 7):
        with pytest.raises(InvalidCursor):
            cursors.decode(other, query)


CURSOR = "A" * 40


@pytest.mark.parametrize(
    ("query", "following"),
    [
        (f"cursor={CURSOR}", "cursor="),
        (f"cursor={CURSOR}&status=pending&limit=7", "status=pending&limit=7&cursor="),
        (f"&limit=7&&%63ursor={CURSOR}&status=pending&", "limit=7&status=pending&cursor="),
        (f"limit=7&cursor=%41{CURSOR[1:]}", "limit=7&cursor="),
        (f"limit=7&cursor={CURSOR}A", "limit=7&cursor="),
    ],
)
def test_a_cursor_may_stand_anywhere_and_is_last_in_the_next_request(query: str, following: str) -> None:
    listing, cursor = read_listing(query.encode())
    assert cursor is not None
    assert cursor.startswith(CURSOR)
    assert listing.next.decode() == f"orders?{following}"
    assert listing.limit == (7 if "limit" in query else 100)
    assert listing.filters == Filters(frozenset([Status.PENDING]) if "status" in query else frozenset())


PAIRS = st.sampled_from(
    (f"cursor={CURSOR}", "cursor=A", "cursor=", "%63ursor=B", "limit=7", "limit=0", "status=pending", "sort=-id", "")
)


@given(st.lists(PAIRS, max_size=4).map("&".join))
def test_a_query_means_the_same_whether_or_not_its_cursor_is_read_apart(query: str) -> None:
    try:
        values = LIST_ORDERS.read(query.encode())
    except InvalidParameter:  # of two faults, either may be named
        with pytest.raises(InvalidParameter):
            read_listing(query.encode())
        return
    listing, cursor = read_listing(query.encode())
    assert (values["limit"], values["cursor"]) == (listing.limit, cursor)
    assert values["sort"] == listing.sort
    assert set(values["status"] or ()) == set(listing.filters.statuses)


def test_the_pages_of_a_walk_share_what_their_query_asks_for() -> None:
    first, none = read_listing(b"limit=7&sort=-id")
    for cursor in (CURSOR, "b" * 40):
        assert (first, cursor) == read_listing(first.next.rpartition(b"?")[2] + cursor.encode())
    assert none is None


def body(**fields: object) -> bytes:
    return json.dumps({"petId": 3, "quantity": 1, **fields}).encode()


def test_a_body_is_read_and_its_date_becomes_canonical() -> None:
    assert (3, 1, None, None) == read_new_order(b' {"quantity": 1, "petId": 3} ')
    assert (3, 1, "2027-01-01T00:00:00Z", "A 1") == read_new_order(
        body(shipDate="2027-01-01T01:00:00.000+01:00", reference="A 1")
    )
    assert (3, 1, None, None) == read_new_order(body(shipDate=None, reference=None))
    largest = (INT64_MIN, INT64_MAX, None, None)
    assert largest == read_new_order(body(petId=INT64_MIN, quantity=INT64_MAX))


WHOLE = "a whole number in plain digits that fits 64 bits"
POSITIVE = "a whole number of at least 1 in plain digits that fits 64 bits"
NOT_JSON = 'The body is not JSON in UTF-8; send an object such as {"petId": 3, "quantity": 1}.'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *[(content, NOT_JSON) for content in (b"", b"{", b"[" * 65_000, b'{"a":' * 13_000, body() + b"x")],
        *[(b'{"petId":3,"quantity":%b}' % end, NOT_JSON) for end in (b"1,", b"NaN", b"01", b'1,"\xff":1')],
        *[(content, NOT_JSON) for content in (b"\xef\xbb\xbf" + body(), body().decode().encode("utf-16"))],
        (b"[]", 'The body is not a JSON object; send one such as {"petId": 3, "quantity": 1}.'),
        (b"{}", f"The body lacks the field 'petId'; it must be {WHOLE}."),
        (b'{"petId":3}', f"The body lacks the field 'quantity'; it must be {POSITIVE}."),
        *[(body(petId=value), f"The field 'petId' must be {WHOLE}.") for value in (None, "3", True, 2**63, 3.0)],
        (b'{"petId":' + b"9" * 60_000 + b',"quantity":1}', f"The field 'petId' must be {WHOLE}."),
        (b'{"petId":3,"quantity":1e3}', f"The field 'quantity' must be {POSITIVE}."),
        *[(body(quantity=value), f"The field 'quantity' must be {POSITIVE}.") for value in (0, None)],
        (
            body(shipDate=1),
            ("The field 'shipDate' must be an RFC 3339 date-time with an offset, in the years 1 to 9999 in UTC, such "
            "as 2026-11-01T10:00:00Z."),
        ),
        *[(body(reference=value), f"The field 'reference' must be {REFERENCE_FORM}.") for value in (" a", 1)],
        (
            body(id=7),
            "The body contains 'id', which is not a field; the fields are petId, quantity, shipDate, reference.",
        ),
        (
            body(**{"x" * 40: 7}),
            "The body contains a name, which is not a field; the fields are petId, quantity, shipDate, reference.",
        ),
        (b'{"petId":3,"quantity":1,"petId":3}', "The body contains 'petId' more than once; give each field once."),
    ],
)  # fmt: skip
def test_the_message_names_the_field_and_what_is_allowed(content: bytes, message: str) -> None:
    with pytest.raises(InvalidBody) as raised:
        read_new_order(content)
    assert message == raised.value.message


def test_json_in_utf_8_is_accepted_and_any_other_media_type_or_coding_refused() -> None:
    accepted = [b"application/json", b"Application/JSON; charset=UTF-8", b'application/json;charset="utf-8"']
    accepted += [b"application/json;", b"application/json ; v=1 ; charset=utf-8 ;", b"application/json;odata=verbose"]
    for content_type, coding in product(accepted, ({}, {b"content-encoding": b"identity"})):
        check_media_type({b"content-type": content_type, **coding})
    refused = [
        b"",
        b"text/plain",
        b"application/merge-patch+json",
        b"application/json-patch+json",
        b"application/x-www-form-urlencoded",
    ]
    refused += [b"application/json; charset=latin-1", b"application/json, application/json", b"application/json x"]
    refused += [b"application/json; v=1; Charset=utf-16", b"application/json; v=1, text/plain", b"text/json; v=1"]
    compressed = {b"content-type": b"application/json", b"content-encoding": b"gzip"}
    for headers in (compressed, {}, *({b"content-type": other} for other in refused)):
        with pytest.raises(UnsupportedMediaType):
            check_media_type(headers)


def test_a_correction_may_also_be_declared_as_a_merge_patch() -> None:
    for content_type in (b"application/json", b"application/merge-patch+json", b"Application/Merge-Patch+JSON"):
        check_media_type({b"content-type": content_type}, patch=True)
    for other in (b"application/json-patch+json", b"text/plain"):
        with pytest.raises(UnsupportedMediaType):
            check_media_type({b"content-type": other}, patch=True)


@pytest.mark.parametrize(
    ("key", "valid"), [("!", True), ("~" * 255, True), ("", False), ("a" * 256, False), ("a b", False), ("é", False)]
)
def test_an_idempotency_key_has_1_to_255_visible_ascii_characters(key: str, valid: bool) -> None:
    with nullcontext() if valid else pytest.raises(ValueError, match="visible ASCII"):
        assert key == IDEMPOTENCY_KEY.kind.from_text(key)


def test_what_a_cursor_is_bound_to_stays_the_same_in_every_release() -> None:
    everything = Filters(frozenset(Status), 7, True, 1, 2, 3, frozenset({"a", "b"}))
    sorts = [Sort(field, descending) for field in SortField for descending in (False, True)]
    digests = [query_digest(filters, sort).hex() for filters in (Filters(), everything) for sort in sorts]
    assert "ba07d1d3b7d1b335" == digests[0]
    assert 12 == len(set(digests))
