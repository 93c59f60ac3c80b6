"""The form of keys, their checksum and their states (D9)."""

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.keys import (
    DEFAULT_SCOPES,
    Environment,
    KeyState,
    Scope,
    digest,
    is_well_formed,
    key_state,
    new_key,
    new_key_id,
    parse_scopes,
)

KEY = new_key(Environment.PRODUCTION, random.Random(7).randrange)
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def test_a_key_tells_its_environment_is_well_formed_and_carries_160_random_bits() -> None:
    for environment, prefix in ((Environment.PRODUCTION, "pso_live_"), (Environment.STAGING, "pso_test_")):
        key = new_key(environment, random.Random(7).randrange)
        assert re.fullmatch(prefix + "[0-9A-Za-z]{33}", key)
        assert is_well_formed(key)
    assert "pso_live_" + "z" * 27 + "1EXgYk" == new_key(Environment.PRODUCTION, lambda number: number - 1)


@given(position=st.integers(9, len(KEY) - 1), replacement=st.sampled_from(ALPHABET))
def test_one_mistyped_character_is_always_noticed(position: int, replacement: str) -> None:
    typed = KEY[:position] + replacement + KEY[position + 1 :]
    assert (typed == KEY) == is_well_formed(typed)


@given(st.text(max_size=60))
def test_no_other_text_passes_for_a_key(text: str) -> None:
    assert not is_well_formed(text)


def test_a_live_keys_random_part_is_not_a_test_key() -> None:
    assert not is_well_formed(KEY.replace("live", "test"))


def test_the_digest_is_sha_256_and_the_id_tells_nothing_of_the_key() -> None:
    assert 32 == len(digest(KEY))
    assert re.fullmatch(r"key_[0-9A-Za-z]{12}", new_key_id(random.Random(3).randrange))


def test_a_key_is_active_expiring_expired_or_revoked_or_suspended_with_its_account() -> None:
    states = [
        key_state(expires_at, revoked_at, suspended, 100.0)
        for suspended in (False, True)
        for expires_at, revoked_at in ((None, None), (100.1, None), (100.0, None), (100.1, 50.0))
    ]
    ended = [KeyState.EXPIRED, KeyState.REVOKED]
    assert [KeyState.ACTIVE, KeyState.EXPIRING, *ended, KeyState.SUSPENDED, KeyState.SUSPENDED, *ended] == states


def test_experimental_scopes_are_not_in_the_default_set() -> None:
    assert {"orders:read", "orders:cancel", "pets:read"} == DEFAULT_SCOPES


def test_a_scope_that_only_a_later_release_knows_grants_nothing() -> None:
    assert {Scope.ORDERS_READ, Scope.ORDERS_WRITE} == parse_scopes("orders:read orders:write orders:invent")
