"""Cancelling, in particular when a response is lost."""

import gzip
from dataclasses import replace

import pytest

from petstore_client import Order, errors
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
