"""Finding the route of a path: what a path without a key may cost, whatever it holds."""

from urllib.parse import unquote

import pytest

from petstore_server.api import routes
from petstore_server.api.routes import Route, Routes


def table(*templates: str) -> Routes:
    return Routes([Route(template, {}) for template in templates])


TABLE = table("/v1/store/orders", "/v1/store/orders/{orderId}", "/v2/usage")


@pytest.mark.parametrize(
    "path",
    [
        b"/v1" + b"/%41" * 2000,
        b"/v1/store/orders/" + b"%31" * 2600,
        b"/" + b"%76" * 2600,
        b"/%41%42%43" * 800,
        b"/v1/store/orders/7/" + b"%2f" * 2600,
    ],
)
def test_of_a_long_path_hardly_anything_is_decoded_and_it_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch, path: bytes
) -> None:
    sizes: list[int] = []

    def counted(text: str) -> str:
        sizes.append(len(text))
        return unquote(text)

    monkeypatch.setattr(routes, "unquote", counted)
    match = TABLE.find(path)
    assert sum(sizes) <= 500
    assert match.version in ("v1", "")
    assert match.route is None or match.parameter.startswith("%31")
    assert len(match.segments) <= 5


@pytest.mark.parametrize("character", ["", "x", "%78"])
def test_a_segment_too_many_is_another_path(character: str) -> None:
    for path in ("/v1/store/orders/7", "/v2/usage", "/v1/store/orders"):
        assert TABLE.find(path.encode()).route is not None
        assert TABLE.find(f"{path}/x/{character}".encode()).route is None
    assert TABLE.find(b"/v2/usage") is TABLE.find(b"/v2/usage")  # is not taken apart again
    assert ("", None) == ((match := TABLE.find(b"*")).version, match.route)
    for path in ("/v1/%zz", "/v1/.", "/v1"):
        assert TABLE.find(path.encode() + character.encode()).route is None


def test_an_identifier_may_be_encoded_in_every_character() -> None:
    identifier = "-9223372036854775808"
    encoded = "".join(f"%{ord(character):02X}" for character in identifier)
    assert identifier == TABLE.find(f"/v1/store/orders/{encoded}".encode()).parameter
    for end, last in (("", "1" * 32), ("1", "%31" * 32 + "1")):  # an identifier has at most 96 bytes
        assert last == TABLE.find(f"/v1/store/orders/{'%31' * 32}{end}".encode()).parameter
    assert TABLE.find(b"/v1/store/orders").route is TABLE.find(b"/%76%31/store/%6Frders").route is not None


def test_a_path_leads_to_the_same_however_it_is_spelled() -> None:
    for plain, encoded in ((b"/v1/store/orders/71", b"/v1/store/orders/7%31"), (b"/v2/usage", b"/v2/usag%65")):
        assert TABLE.find(plain) == TABLE.find(encoded)
        assert TABLE.find(plain).route is not None
    for no_parameter in (b"/v1/store/orders/", b"/v1/store//7", b"/v1/store/orders//"):
        assert (match := TABLE.find(no_parameter)).route is None
        assert "v1" == match.version


ORDER, SHIP, BATCH = "/v2/store/orders/{orderId}", "/v2/store/orders/{orderId}/ship", "/v2/store/orders/batch"


@pytest.mark.parametrize("batch", ["batch", "b%61tch"])
def test_a_parameter_may_stand_before_other_segments_and_a_literal_segment_goes_first(batch: str) -> None:
    found = table(ORDER, SHIP, BATCH, "/v2/store/orders")
    expected = {"7": (ORDER, "7"), "7/ship": (SHIP, "7"), "%37/sh%69p": (SHIP, "7"), batch: (BATCH, "")}
    for path, leads_to in expected.items():
        match = found.find(f"/v2/store/orders/{path}".encode())
        assert match.route is not None
        assert leads_to == (match.route.template, match.parameter)
    assert "batch" == found.find(b"/v2/store/orders/batch/ship").parameter
    for path in ("//ship", "/7/ship/", "/7/shipped", "/7/", "/%7B%7D/x", "/{}/x"):
        assert found.find(f"/v2/store/orders{path}".encode()).route is None
