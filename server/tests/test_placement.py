"""Placing an order, as rules on values: equal bodies, replays, and the record that is returned."""

from petstore_server.domain.orders import Order, Placed, Placement, Status, TrackedOrder

ASKED = Placement(account_id=1, key="k", pet_id=3, quantity=2, ship_date=None)


def test_a_placed_order_is_pending_and_has_the_fields_of_the_request() -> None:
    dated = ASKED._replace(ship_date="2027-01-01T00:00:00Z")
    assert Order(9, 3, 2, "2027-01-01T00:00:00Z", None, Status.PENDING) == dated.order(9)
    assert dated.order(9)._replace(ship_date=None) == ASKED.order(9)


def test_the_digest_identifies_the_body_and_not_the_account_or_the_key() -> None:
    assert ASKED.digest == ASKED._replace(account_id=2, key="other").digest
    others = [
        ASKED._replace(pet_id=2),
        ASKED._replace(quantity=3),
        ASKED._replace(ship_date="2027-01-01T00:00:00Z"),
        ASKED._replace(pet_id=2, quantity=3),
    ]
    assert 5 == len({placement.digest for placement in [ASKED, *others]})
    assert 32 == len(ASKED.digest)


def test_a_replay_returns_the_bytes_of_the_first_response() -> None:
    first = ASKED.placed(9, 1_000_001, replayed=False)
    assert (
        b'{"id":9,"petId":3,"quantity":2,"status":"pending",'
        b'"createdAt":"1970-01-01T00:00:01.000001Z","updatedAt":"1970-01-01T00:00:01.000001Z"}'
    ) == first.body
    assert Placed(9, first.body, replayed=True) == ASKED.placed(9, 1_000_001, replayed=True)


def test_an_order_of_version_2_has_the_record_the_status_and_the_timestamps() -> None:
    record = ASKED.order(9).record()
    assert (
        '{"id":9,"petId":3,"quantity":2,"status":"cancelled",'
        '"createdAt":"1970-01-01T00:00:01Z","updatedAt":"1970-01-01T00:00:01.000001Z"}'
    ) == TrackedOrder(record, Status.CANCELLED, 1_000_001, 1_000_000).text()
