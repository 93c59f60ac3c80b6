"""Cancelling, in particular when a response is lost."""

import gzip
from dataclasses import replace

import pytest

from petstore_client import Order, Pet, errors
from petstore_client.testing import FakePetstore
from petstore_client.testing.faults import Answered, Dropped, Fault
from testing.client_variants import Connect, Own, faulty

ORDERS = [Order(id=1)]


@pytest.mark.parametrize(
    ("number", "code", "kind"),
    [(1, "order_already_shipped", errors.ConflictError), (2, "order_not_found", errors.NotFoundError)],
)
def test_any_other_refusal_after_a_lost_response_is_raised(
    connect: Connect, number: int, code: str, kind: type[errors.PetstoreError]
) -> None:
    fake = faulty(ORDERS, Dropped(), shipped=[1])
    with connect(fake) as petstore, pytest.raises(kind, match=code) as caught:
        petstore.cancel_order(number)
    assert not caught.value.may_have_been_applied


CONFLICT = b'{"code":"order_already_cancelled","message":"No.","status":409}'
GZIP = {"content-type": "application/json", "content-encoding": "gzip"}


@pytest.mark.parametrize(
    "fault",
    [
        Own(lambda *sent: replace(Answered(409, CONFLICT[:9]).apply(*sent), cut=True)),
        Answered(409, gzip.compress(CONFLICT)[:-9], GZIP),
    ],
    ids=["plain", "compressed"],
)
def test_a_conflict_whose_body_is_cut_off_is_one_and_leaves_no_doubt(connect: Connect, fault: Fault) -> None:
    fake = faulty(ORDERS, fault)
    fake.cancelled.add(1)
    with connect(fake) as petstore, pytest.raises(errors.ConflictError) as caught:
        petstore.cancel_order(1)
    assert not caught.value.may_have_been_applied  # another client cancelled it


@pytest.mark.parametrize("wrong", ["1", 1.0, True, None, "../../pets/1"])
def test_an_identifier_is_an_int(connect: Connect, wrong: object) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake) as petstore, pytest.raises(TypeError):
        petstore.cancel_order(wrong)  # type: ignore[arg-type]
    assert [] == fake.requests


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, 2**53 + 1, 0, -5])
def test_identifiers_use_all_64_bits(connect: Connect, number: int) -> None:
    fake = FakePetstore([Order(id=number)])
    with connect(fake) as petstore:
        petstore.cancel_order(number)
        assert [number] == [order.id for order in petstore.list_orders()]
    assert {number} == fake.cancelled


class Identifier:
    """Stands for an integer, as a `numpy.int64` does."""

    def __index__(self) -> int:
        return 7


def test_what_stands_for_an_int_is_an_identifier(connect: Connect) -> None:
    fake = FakePetstore([Order(id=7, pet_id=7), Order(id=8)], pets=[Pet(id=7)])
    with connect(fake) as petstore:
        assert [7] == [order.id for order in petstore.v2.list_orders(pet_id=Identifier()).data]
        assert 7 == petstore.v2.get_order(Identifier()).id
        with pytest.warns(DeprecationWarning, match="get_pet"):
            assert 7 == petstore.get_pet(Identifier()).id
        petstore.cancel_order(Identifier())
        with pytest.raises(errors.ConflictError):
            petstore.v2.cancel_order(Identifier())
        placed = petstore.v2.place_order(pet_id=Identifier(), quantity=Identifier())
        assert (7, 7) == (placed.pet_id, placed.quantity)
    assert {7} == fake.cancelled


def test_an_identifier_beyond_64_bits_is_refused_by_the_service(connect: Connect) -> None:
    with connect(FakePetstore(ORDERS)) as petstore, pytest.raises(errors.NotFoundError) as caught:
        petstore.cancel_order(2**63)
    assert "invalid_order_id" == caught.value.code


def test_a_broken_body_behind_a_204_does_not_matter(connect: Connect) -> None:
    fake = faulty(ORDERS, Own(lambda _, __, serve: replace(serve(), pieces=(b"x",), cut=True)))
    with connect(fake) as petstore:
        petstore.cancel_order(1)
    assert ({1}, 1) == (fake.cancelled, len(fake.requests))


@pytest.mark.parametrize(("status", "doubt"), [(200, True), (202, True), (302, False), (308, False)])
def test_an_unexpected_response_below_300_leaves_doubt_and_a_redirect_does_not(
    connect: Connect, status: int, doubt: bool
) -> None:
    fake = faulty(ORDERS, Answered(status))
    with connect(fake) as petstore, pytest.raises(errors.InvalidResponseError) as caught:
        petstore.cancel_order(1)
    assert doubt is caught.value.may_have_been_applied
