"""The columns of a file, with examples of their cells: what the console offers choices for."""

import io
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.console.forms import Form
from petstore_server.console.import_choices import MAX_COLUMNS, Choices
from petstore_server.imports.columns import Column, read_columns
from petstore_server.imports.files import UnreadableFile

SHOPIFY = [
    Column(name, ())
    for name in (
        "Name",
        "Created at",
        "Financial Status",
        "Fulfilled at",
        "Lineitem quantity",
        "Lineitem name",
        "Lineitem sku",
        "Cancelled at",
        "Id",
    )
]


def columns(content: bytes, name: str = "orders.csv") -> dict[str, tuple[str, ...]]:
    return {column.name: column.examples for column in read_columns(io.BytesIO(content), name, None, None)}


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"id,petId\n1,7\n2,7\n", "orders.csv"),
        (b"\xef\xbb\xbfid;petId\r\n1;7\r\n2;7\r\n", "orders.txt"),
        ("id\tpetId\n1\t7\n2\t7\n".encode("utf-16"), "orders.txt"),
        (b'{"id": 1, "petId": 7}\n{"id": 2, "petId": 7}\n', "orders.jsonl"),
        (b'[{"id": 1},\n {"petId": 7, "id": 2}]', "orders.json"),
        (b'{"id": 1, "petId": 7}\n{"id": 2, "pet', "orders"),
    ],
)
def test_columns_have_the_first_different_texts_of_their_cells(content: bytes, name: str) -> None:
    found = columns(content, name)
    assert ["id", "petId"] == list(found)
    assert "1" == found["id"][0]
    assert ("7",) == found["petId"]


def test_examples_are_short_and_in_one_line() -> None:
    found = columns(b'a,b,c\n"x\n  y",%s,\n1,2,\n3,4,\n5,6,\n' % (b"z" * 5000))
    assert {"a": ("x y", "1", "3"), "b": ("z" * 40, "2", "4"), "c": ()} == found
    assert {"a": ('{"b": [1]}', "true")} == columns(b'{"a": {"b": [1]}}\n{"a": true}\n', "a.jsonl")


def test_a_file_without_columns_is_refused_and_json_without_records_has_none() -> None:
    with pytest.raises(UnreadableFile):
        columns(b"\n\n")
    assert {} == columns(b"[1, 2]", "orders.json")
    assert {} == columns(b"", "orders.jsonl")
    assert {} == columns(b'{"orders', "orders.json")


@given(st.binary(max_size=300), st.sampled_from(["a.csv", "a.json", "a.jsonl", "a"]))
def test_whatever_a_file_contains_it_has_columns_or_a_reason(content: bytes, name: str) -> None:
    with suppress(UnreadableFile):
        columns(content, name)


def test_the_first_choices_are_those_of_the_shop_that_is_recognised() -> None:
    choices = Choices.of(SHOPIFY, {"zone": "UTC"})
    assert ("shopify", "yes", "UTC") == (choices.shop, choices.fields["split_lines"], choices.fields["zone"])
    assert {
        "Name": "reference",
        "Lineitem quantity": "quantity",
        "Lineitem sku": "petId",
        "Fulfilled at": "shipDate,shipped",
        "Cancelled at": "cancelled",
    } == choices.columns
    arguments = choices.arguments(SHOPIFY)
    assert {"--map=Fulfilled at=shipDate", "--map=Fulfilled at=shipped", "--ignore-column=Id"} <= set(arguments)
    assert "--split-lines" in arguments


def test_without_a_shop_columns_with_names_of_fields_are_these() -> None:
    found = [Column("ID", ()), Column("Pet Id", ()), Column("Notes", ())]
    choices = Choices.of(found, {})
    assert ("", {"ID": "id", "Pet Id": "petId"}) == (choices.shop, choices.columns)
    assert ["--map=ID=id", "--map=Pet Id=petId", "--ignore-column=Notes"] == choices.arguments(found)[:-1]
    own = [Column("id", ()), Column("petId", ())]
    assert [] == Choices.of(own, {}).arguments(own)[:-1], "mapped names would be read row by row"


def test_choices_are_those_of_the_form() -> None:
    form = Form(
        [
            ("shop", "shopify"),
            ("column-0", "reference"),
            ("column-1", "nonsense"),
            ("column-8", "id"),
            ("status-Fulfilled", "shipped"),
            ("status-", "pending"),
            ("zone", "Europe/Berlin"),
            ("update_only", "yes"),
        ]
    )
    choices = Choices.submitted(form, SHOPIFY)
    assert {"Name": "reference", "Id": "id"} == choices.columns
    arguments = set(choices.arguments(SHOPIFY))
    assert {
        "--map=Name=reference",
        "--ignore-column=Created at",
        "--update-only",
        "--timezone=Europe/Berlin",
    } <= arguments
    assert {"--map-status=fulfilled=shipped", "--map-status==pending"} <= arguments
    assert "shipped" == choices.status_of(" FULFILLED ")
    assert ("cancelled", "") == (choices.status_of("Cancelled"), choices.status_of("refunded"))
    assert choices.for_shop("etsy", SHOPIFY).shop == "", "it is not an export of that shop"
    assert {"Id": "id"} == choices.for_shop("", SHOPIFY).columns


def test_a_column_that_is_left_out_does_not_take_along_one_whose_name_is_spelled_otherwise() -> None:
    found = [Column(name, ()) for name in ("id", "Ship Date", "ship_date")]
    options = Choices.submitted(Form([("column-0", "id"), ("column-1", "shipDate")]), found).arguments(found)
    assert ["--map=Ship Date=shipDate"] == options[:-1], "the check refuses them"


def test_columns_beyond_those_of_the_form_are_left_out() -> None:
    many = [Column(f"c{number}", ()) for number in range(MAX_COLUMNS + 1)]
    assert "--ignore-column=*" in Choices.of(many, {}).arguments(many)


def test_a_column_that_is_left_out_does_not_take_along_another_one_of_its_name() -> None:
    columns = [Column(name, ()) for name in ("id", "Qty", "Qty", "Qty")]
    form = Form([("column-0", "id"), ("column-1", ""), ("column-2", "quantity"), ("column-3", "")])
    assert {"id": "id", "Qty": "quantity"} == Choices.submitted(form, columns).columns
