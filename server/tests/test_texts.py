"""What is printable and visible, equal on every Python; API keys in texts: hidden in every spelling, never stored."""

import asyncio
import io
import json
import re
import string
import sys
from contextlib import redirect_stderr
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any
from unicodedata import category
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from petstore_server.domain.audit import check_operator_name
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import Order
from petstore_server.domain.texts import (
    check_note,
    hide_keys,
    is_printable,
    is_visible,
    looks_like_key,
    percent_decoded,
)
from testing import wire
from testing.deployment import Deployment
from testing.memory import memory
from testing.service import Service, running

CHARACTERS = list(map(chr, range(sys.maxunicode + 1)))
INVISIBLE = (  # Default_Ignorable_Code_Point among letters and marks, whose ranges Unicode has reserved; blank symbols
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x2800, 0x3164, 0xFFA0, 0x13441, 0x13442, 0x16FE4, 0x1D159}
    | {*range(0x180B, 0x180E), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
)


@st.composite
def spelled_keys(draw: st.DrawFn) -> tuple[str, str]:
    """The letters and digits of a key's secret, and the key as a client may write it by mistake."""
    secret = draw(st.text(string.ascii_letters + string.digits, min_size=33, max_size=33))
    prefix = draw(st.sampled_from(["pso_live_", "pso_test_"])) * draw(st.integers(1, 2))
    written = []
    for character in prefix + secret:
        if character == "_":
            character = draw(st.sampled_from(["_", "-", "", "%5f", "/", "__", ".\\"]))
        elif draw(st.integers(0, 9)) == 0:
            character += draw(st.sampled_from(["-", "/", "_", ".", "%2F", "'", "=&", "\xe9"]))
        if draw(st.integers(0, 9)) == 0:
            character = "".join(f"%{byte:02X}" for byte in character.encode("latin-1"))
        written.append(character.swapcase() if draw(st.integers(0, 9)) == 0 else character)
    text = "".join(written)
    for _ in range(draw(st.integers(0, 3))):
        text = text.replace("%", "%25")
    return secret.lower(), text


def test_what_is_printable_and_visible_is_the_same_on_every_python() -> None:
    for is_allowed, count, digest in (
        (is_printable, 909_096, "c1316b9e1907ddeb"),
        (is_visible, 908_824, "42dc3d4932f12420"),
    ):
        accepted = [is_allowed(character) for character in CHARACTERS]
        assert (count, digest) == (sum(accepted), sha256(bytes(accepted)).hexdigest()[:16])


def test_printable_is_what_python_says_of_the_characters_that_it_knows_and_visible_is_less() -> None:
    known = [character for character in CHARACTERS if category(character) != "Cn"]
    assert [] == [character for character in known if is_printable(character) != character.isprintable()]
    assert INVISIBLE == {ord(each) for each in CHARACTERS if is_printable(each) and not is_visible(each)}


def test_an_operators_name_is_not_empty_to_the_eye_and_a_note_may_have_an_emoji() -> None:
    for name in ("\u3164", " \u2800\ufe0f"):
        with pytest.raises(InvalidInput, match="operator's name"):
            check_operator_name(name)
    assert "ann\u2800lee" == check_operator_name("ann\u2800lee ")
    assert "call \u260e\ufe0f" == check_note("call \u260e\ufe0f")
    with pytest.raises(InvalidInput, match="one line"):
        check_note("call\u200b")


def test_a_key_in_a_text_is_cut_to_its_prefix() -> None:
    assert "GET pso_live_[hidden] and pso_test_[hidden]" == hide_keys("GET pso_live_0aZ and pso_test_x")


@given(
    spelled_keys(), st.sampled_from(["", "x-", "GET /v1/", "'", "no such thing: "]), st.sampled_from(["", "'.", " x"])
)
def test_a_key_in_a_text_is_found_and_hidden_however_it_is_spelled(key: tuple[str, str], before: str, end: str) -> None:
    secret, spelled = key
    text = before + spelled + end
    assert looks_like_key(text)
    hidden = re.sub(r"[^0-9a-z]", "", hide_keys(text).lower())
    assert [] == [at for at in range(len(secret) - 6) if secret[at : at + 6] in hidden]
    assert hide_keys(text).startswith(before)
    assert hide_keys(text).endswith(end)


@given(st.text(string.printable, max_size=60))
def test_a_text_without_a_prefix_holds_no_key_and_stays_as_it_is(text: str) -> None:
    assume("o" not in percent_decoded(text).lower())
    assert (False, text) == (looks_like_key(text), hide_keys(text))


@pytest.mark.parametrize(
    "text", ["stop so live keys can end", "topsoil test", "epsom-test", "the prefix pso_live_", "50%"]
)
def test_words_that_resemble_a_prefix_are_not_keys(text: str) -> None:
    assert (False, text) == (looks_like_key(text), hide_keys(text))


@given(st.text("%%%2357aFé", max_size=40))
def test_text_is_decoded_until_nothing_is_encoded(text: str) -> None:
    expected = text
    while (decoded := unquote(expected, "latin-1")) != expected:
        expected = decoded
    assert expected == percent_decoded(text)


@pytest.mark.parametrize(("text", "decoded"), [("%" + "25" * 1_000 + "5F", "_"), ("%3" * 1_000 + "%35", "5")])
def test_text_that_was_encoded_again_and_again_is_decoded_in_one_pass(text: str, decoded: str) -> None:
    """Decoding it once for each time that it was encoded executes more than ten lines for each character."""
    lines = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = percent_decoded(text)
    finally:
        sys.settrace(before)
    assert decoded == found
    assert 0 < lines < 5 * len(text)


KEYS = 5


def parts_of(secret: str, text: str) -> list[str]:
    """What a text holds of a secret, however it is spelled there: seven characters or more."""
    plain = re.sub(r"[^0-9a-z]", "", percent_decoded(text).lower())
    return [part for at in range(len(secret) - 6) if (part := secret[at : at + 7]) in plain]


async def send(service: Service, key: str, method: str, target: str, *lines: str, body: str = "") -> bytes:
    """Send a request with a valid key exactly as it is worded, and return the response."""
    length = f"Content-Length: {len(body)}"
    head = wire.head(method, target, length, "Connection: close", *lines, key=key)
    return await wire.send(service.transport.port, head + body.encode("latin-1"))


@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.large_base_example], phases=[Phase.generate]
)
@given(st.lists(spelled_keys(), min_size=KEYS, max_size=KEYS))
def test_no_spelling_of_a_key_is_logged_counted_or_stored(keys: list[tuple[str, str]]) -> None:
    async def story(service: Service) -> None:
        valid = await service.key(scopes=DEFAULT_SCOPES | {Scope.ORDERS_WRITE})
        await service.orders(*map(Order, range(1, KEYS + 1)))
        for number, (_, spelled) in enumerate(keys, 1):
            for path in (f"/v1/{spelled}", f"/v1/store/orders/{spelled}?{spelled}", f"/docs/{spelled}", f"/{spelled}"):
                await send(service, valid, "GET", path, f"User-Agent: {spelled}", f"X-Request-Id: {spelled}")
            await send(service, valid, "GET", spelled)
            await send(service, valid, "GET", f"/{spelled} ")
            await send(service, spelled, "GET", "/v1/store/orders", f"X-Forwarded-For: {spelled}")
            cancelled = await send(service, valid, "DELETE", f"/v1/store/orders/{number}", f"X-Request-Id: {spelled}")
            assert cancelled.startswith(b"HTTP/1.1 204 ")
            more = ("Content-Type: application/json", f"Idempotency-Key: {spelled}", f"X-Request-Id: {spelled}")
            for fields in ({}, {"reference": spelled}):
                body = json.dumps({"petId": 1, "quantity": 1, **fields})
                await send(service, valid, "POST", "/v2/store/orders", *more, body=body)

    counted: list[str] = []

    async def run(deployment: Deployment) -> None:
        async with running(deployment, PETSTORE_ACCESS_LOG="all", PETSTORE_LOG_LEVEL="debug") as service:
            await story(service)
            counted.append(str(await service.application.collect()))

    with TemporaryDirectory(dir=memory()) as folder, redirect_stderr(io.StringIO()) as log:
        asyncio.run(run(Deployment(Path(folder) / "store.db")))
        stored = b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())
    assert log.getvalue().count('"event":"request answered"') == 10 * KEYS
    for secret, _ in keys:
        assert [] == parts_of(secret, log.getvalue() + counted[0])
        assert [] == parts_of(secret, stored.decode("latin-1"))
