"""API keys in texts: found and hidden in every spelling, and in nothing else."""

import re
import string
import sys
from types import FrameType
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petstore_server.domain.texts import hide_keys, looks_like_key, percent_decoded
from testing.spelled_keys import spelled_keys


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
