"""What errors of the domain say to partners and to operators."""

from petstore_server.domain.errors import KeyNotUsable, ServiceUnavailable, Unreachable


def test_a_store_that_is_not_available_explains_itself_to_operators_only() -> None:
    error = ServiceUnavailable("the disk is full", 5)
    assert ("the disk is full", "The disk is full.", 5) == (error.reason, error.explanation, error.retry_after)
    assert str(error) == "The service is temporarily unavailable; retry after the seconds in Retry-After."


def test_what_cannot_be_reached_is_unavailable_with_a_remedy() -> None:
    error = Unreachable("Redis cannot be used", "refused", "Start it.")
    assert ("refused", 1) == (error.reason, error.retry_after)
    assert "Redis cannot be used (refused). Start it." == error.explanation
    assert str(error) == str(ServiceUnavailable("anything"))


def test_a_key_that_cannot_be_used_is_named_with_its_state() -> None:
    assert "Key key_1 is revoked; create a new one." == str(KeyNotUsable("key_1", "revoked"))
