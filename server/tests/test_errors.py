"""What errors of the domain say to partners and to operators."""

import ast
from pathlib import Path

import petstore_server
from petstore_server.api import errors as api
from petstore_server.domain import errors
from petstore_server.domain.errors import DomainError, KeyNotUsable, KeyRotated, ServiceUnavailable, Unreachable
from petstore_server.domain.texts import in_words


def test_a_store_that_is_not_available_explains_itself_to_operators_only() -> None:
    error = ServiceUnavailable("the disk is full")
    assert ("the disk is full", "The disk is full.") == (error.reason, error.explanation)
    assert "The service is temporarily unavailable; retry after the seconds in Retry-After." == str(error)


def test_what_cannot_be_reached_is_unavailable_with_a_remedy() -> None:
    error = Unreachable("Redis cannot be used", "refused", "Start it.")
    assert "refused" == error.reason
    assert "Redis cannot be used (refused). Start it." == error.explanation
    assert str(error) == str(ServiceUnavailable("anything"))


def test_a_key_that_cannot_be_used_is_named_with_its_state() -> None:
    assert "Key key_1 is revoked; create a new one." == str(KeyNotUsable("key_1", "revoked"))
    assert "Key key_1 is already rotated to key_2; rotate that one." == str(KeyRotated("key_1", "key_2"))


def test_the_code_of_an_error_is_its_name_or_that_of_its_base() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, DomainError) and "code" in vars(kind):
            name = in_words(kind.__name__).strip().replace(" ", "_")
            assert kind.code == ("internal_error" if kind is DomainError else name)


def test_every_error_is_made_with_as_many_values_as_its_message_has_places() -> None:
    places = {
        name: kind.message.count("{}")
        for name, kind in (vars(errors) | vars(api)).items()
        if isinstance(kind, type) and issubclass(kind, DomainError) and kind.__init__ is DomainError.__init__
    }
    made = []
    for path in Path(petstore_server.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                made.append((node.func.id, len(node.args)))
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
                made.append((node.exc.id, 0))
    found = [(name, values) for name, values in made if name in places]
    assert len(found) > 60
    assert [] == [(name, values) for name, values in found if values != places[name]]
