"""The form of keys, their checksum and their states (D9)."""

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import KeyNotUsable
from petstore_server.domain.keys import (
    DEFAULT_SCOPES,
    ApiKey,
    Environment,
    KeyState,
    Scope,
    Successor,
    digest,
    is_well_formed,
    key_state,
    new_key,
    new_key_id,
    parse_scopes,
    revoke,
    rotate,
    unban,
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


STORED = ApiKey("key_1", "acme", b"1", Environment.PRODUCTION, DEFAULT_SCOPES, "note", 1.0, last_used_at=0)
BANNED = replace(STORED, ban=Ban("key_1", 100, 220, 1))


def test_a_revocation_is_final_and_a_ban_is_lifted_while_it_holds() -> None:
    revoked = replace(STORED, revoked_at=5.0)
    assert [revoked, revoked] == [revoke(5.0).apply(STORED), revoke(9.0).apply(revoked)]
    assert ["key.revoke", "key.unban"] == [revoke(5.0).action, unban(5.0).action]
    assert STORED == unban(150.0).apply(BANNED)
    times = (39.0, 40.0, 219.0, 220.0)
    assert [False, True, True, False] == [unban(at).is_allowed(BANNED) for at in times]
    assert [False, True, True, False] == [BANNED.is_banned(at) for at in times]
    assert not unban(150.0).is_allowed(STORED)
    assert [False, False] == [each.is_banned(150.0) for each in (STORED, replace(BANNED, revoked_at=5.0))]
    ban = {"began": 100, "until": 220, "level": 1}
    assert {"expires_at": None, "revoked_at": 5.0, "rotated_to": None, "ban": None} == revoked.fields()
    assert ban == BANNED.fields()["ban"]


@pytest.mark.parametrize(
    ("expires_at", "given", "old_ends", "new_ends"),
    [(None, None, 50.0, None), (40.0, None, 40.0, 40.0), (60.0, 99.0, 50.0, 99.0), (None, 99.0, 50.0, 99.0)],
)
def test_the_successor_of_a_key_takes_over_all_but_its_secret_and_its_use(
    expires_at: float | None, given: float | None, old_ends: float, new_ends: float | None
) -> None:
    old, new = rotate(replace(BANNED, expires_at=expires_at), Successor("key_2", b"2", given), 50.0, 10.0)
    assert replace(BANNED, expires_at=old_ends, rotated_to="key_2") == old
    kept = replace(BANNED, id="key_2", digest=b"2", created_at=10.0, expires_at=new_ends, rotated_from="key_1")
    assert replace(kept, ban=Ban("key_2", 100, 220, 1), last_used_at=None) == new
    for ended, reason in ((old, "already rotated to key_2"), (replace(new, revoked_at=5.0), "key_2 is revoked")):
        with pytest.raises(KeyNotUsable, match=reason):
            rotate(ended, Successor("key_3", b"3"), 50.0, 10.0)


def test_a_scope_that_only_a_later_release_knows_grants_nothing() -> None:
    assert {Scope.ORDERS_READ, Scope.ORDERS_WRITE} == parse_scopes("orders:read orders:write orders:invent")
