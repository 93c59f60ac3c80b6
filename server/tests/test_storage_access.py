"""Accounts, keys, bans and usage in the store: what a key permits, and which processes see a change."""

import asyncio
from dataclasses import replace
from itertools import product

import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, RESUME, Account, Limits, Plan, close, set_plan, suspend
from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import CLOCK_TOLERANCE, Ban
from petstore_server.domain.errors import (
    AccountExists,
    AccountNotFound,
    KeyNotBanned,
    KeyNotFound,
    KeyNotUsable,
    TooManyKeys,
)
from petstore_server.domain.keys import (
    DEFAULT_SCOPES,
    MAX_KEYS,
    VALID,
    Environment,
    KeyState,
    Principal,
    RefusedKey,
    Scope,
    revoke,
    unban,
)
from petstore_server.domain.usage import Activity, Usage, UsageCounts
from petstore_server.domain.windows import Count
from petstore_server.store import Store
from testing.stores import BY, Stores, add_key, api_key, log, successor

NOW = 2_000.0
LIVE = Environment.PRODUCTION


async def granted(store: Store, name: str, now: float = NOW) -> bool:
    return isinstance(await store.keys.principal(api_key(name).digest, LIVE, now), Principal)


async def test_a_grant_holds_all_that_a_request_needs(store: Store) -> None:
    account = await store.accounts.create("big", Plan.ENTERPRISE, Limits(7, 70), BY)
    key = replace(api_key("one", "big"), scopes=frozenset({Scope.ORDERS_READ, Scope.PETS_READ}), expires_at=NOW + 1)
    assert key == await store.keys.create(key, BY)
    assert key == await store.keys.find(key.id)
    assert Principal(
        key.id, account.id, "big", Plan.ENTERPRISE, Limits(7, 70), key.scopes, NOW + 1
    ) == await store.keys.principal(key.digest, LIVE, NOW)


async def test_an_account_has_at_most_100_keys_that_have_not_ended_and_each_can_be_rotated(store: Store) -> None:
    await store.accounts.create("zoo", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
    for number in range(MAX_KEYS):
        await store.keys.create(replace(api_key(f"k{number}", "zoo"), expires_at=NOW + 9 if number % 2 else None), BY)
    refused = "'zoo' has 100 keys that have not ended, and 100 are allowed"
    with pytest.raises(TooManyKeys, match=refused):
        await store.keys.create(api_key("more", "zoo"), BY)
    await store.keys.rotate("key_k0", successor("new"), NOW + 1, BY)
    await store.accounts.change("zoo", suspend(NOW), BY)
    with pytest.raises(TooManyKeys, match=refused):
        await store.keys.create(api_key("more", "zoo"), BY)
    await store.keys.change("key_k2", revoke(NOW), BY)
    await store.keys.create(replace(api_key("more", "zoo"), expires_at=BY.at), BY)
    await store.keys.create(api_key("again", "zoo"), BY)
    with pytest.raises(TooManyKeys):
        await store.keys.create(api_key("last", "zoo"), BY)


async def test_keys_that_are_created_at_the_same_time_do_not_exceed_the_bound(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as other:
        await one.accounts.create("zoo", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
        for number in range(MAX_KEYS - 1):
            await one.keys.create(api_key(f"k{number}", "zoo"), BY)
        made = [store.keys.create(api_key(f"m{at}", "zoo"), BY) for at, store in enumerate((one, other) * 4)]
        outcomes = await asyncio.gather(*made, return_exceptions=True)
        assert 7 == sum(isinstance(each, TooManyKeys) for each in outcomes)
        assert MAX_KEYS == len(await one.keys.list("zoo"))


async def test_a_key_permits_requests_exactly_while_its_state_is_valid(store: Store) -> None:
    states = set()
    for account, ends in product(("zoo", "closed"), (None, NOW - 1, NOW, NOW + 1)):
        if ends is None:
            await store.accounts.create(account, Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
        for revoked in (False, True):
            key = replace(api_key(f"{account} {ends} {revoked}", account), expires_at=ends)
            await store.keys.create(key, BY)
            if revoked:
                await store.keys.change(key.id, revoke(NOW), BY)
    await store.accounts.change("closed", close(NOW), BY)
    for key, now in product(await store.keys.list(), (NOW - 0.5, NOW, NOW + 0.5, NOW + 1)):
        state, principal = key.state(now), await store.keys.principal(key.digest, LIVE, now)
        assert await store.keys.principal(key.digest, Environment.STAGING, now) is None
        if state in VALID:
            assert isinstance(principal, Principal)
            assert principal.holds(now)
            for later in (NOW, NOW + 1):  # as a process knows it that has read it before
                assert principal.holds(later) == (key.expires_at is None or later < key.expires_at)
        else:
            assert RefusedKey(key.id, key.account, state) == principal
        states.add(state)
    assert set(KeyState) == states
    assert not await granted(store, "unknown")


async def test_doing_it_twice_changes_nothing_and_closing_keeps_the_time_of_a_suspension(store: Store) -> None:
    key = await add_key(store)
    first = Actor("operator:x", 5.0)
    await store.keys.change(key.id, revoke(first.at), first)
    await store.accounts.change("zoo", suspend(first.at), first)
    version, entries = await store.access_version(), len(await log(store))
    later = Actor("operator:y", 6.0)
    assert 5.0 == (await store.keys.change(key.id, revoke(later.at), later)).revoked_at
    assert 5.0 == (await store.accounts.change("zoo", suspend(later.at), later)).suspended_at
    await store.accounts.change("zoo", set_plan(Plan.FREE, PLAN_LIMITS[Plan.FREE]), later)
    assert (version, entries) == (await store.access_version(), len(await log(store)))
    await store.accounts.change("zoo", RESUME, later)
    version, entries = await store.access_version(), len(await log(store))
    await store.accounts.change("zoo", RESUME, later)
    assert (version, entries) == (await store.access_version(), len(await log(store)))
    await store.accounts.change("zoo", suspend(7.0), later)
    closed = await store.accounts.change("zoo", close(8.0), later)
    assert (closed.suspended_at, closed.closed_at) == (7.0, 8.0)


async def test_what_is_not_there_is_named(store: Store) -> None:
    limits = PLAN_LIMITS[Plan.PRO]
    for asked in (
        store.accounts.find("unknown"),
        store.accounts.change("unknown", set_plan(Plan.PRO, limits), BY),
        store.accounts.change("unknown", suspend(BY.at), BY),
        store.accounts.change("unknown", RESUME, BY),
        store.keys.create(api_key("one", "unknown"), BY),
        store.keys.list("unknown"),
    ):
        with pytest.raises(AccountNotFound, match="'unknown'"):
            await asked
    for asked_key in (
        store.keys.find("key_x"),
        store.keys.change("key_x", revoke(BY.at), BY),
        store.keys.change("key_x", unban(BY.at), BY),
        store.keys.rotate("key_x", successor("two"), NOW, BY),
    ):
        with pytest.raises(KeyNotFound, match="'key_x'"):
            await asked_key
    assert [] == await log(store)


async def test_accounts_are_listed_by_name_and_keys_by_age(store: Store) -> None:
    await add_key(store, "b", "second")
    await add_key(store, "a", "first")
    await store.keys.create(replace(api_key("c", "second"), created_at=1.0), BY)
    with pytest.raises(AccountExists, match="'first'"):
        await store.accounts.create("first", Plan.PRO, PLAN_LIMITS[Plan.PRO], BY)
    assert [
        Account(2, "first", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY.at),
        Account(1, "second", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY.at),
    ] == await store.accounts.list()
    assert ["key_c", "key_b", "key_a"] == [key.id for key in await store.keys.list()]
    assert ["key_c", "key_b"] == [key.id for key in await store.keys.list("second")]


async def test_a_rotated_key_stays_valid_until_the_grace_ends_and_its_successor_inherits_the_rest(store: Store) -> None:
    await store.accounts.create("zoo", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
    old = replace(api_key("old"), scopes=frozenset({Scope.PETS_READ}), note="shop", expires_at=9_000.0)
    await store.keys.create(old, BY)
    ban = Ban(old.id, 1_900, 2_900, 2)
    await store.usage.save({}, [ban])
    rotated, new = await store.keys.rotate(old.id, successor("new"), 3_000.0, Actor("operator:x", NOW))
    inherited = replace(
        old,
        id="key_new",
        digest=api_key("new").digest,
        created_at=NOW,
        rotated_from=old.id,
        ban=replace(ban, key_id="key_new"),
    )
    assert (rotated, new) == (replace(old, expires_at=3_000.0, ban=ban, rotated_to="key_new"), inherited)
    assert inherited == await store.keys.find("key_new")
    assert rotated == await store.keys.find(old.id)
    assert [replace(ban, key_id="key_new"), ban] == await store.usage.bans()
    assert await granted(store, "old", 2_999.0)
    assert not await granted(store, "old", 3_000.0)
    assert await granted(store, "new", 8_999.0)


async def test_a_rotation_does_not_escape_a_ban_that_is_stored_after_it(store: Store) -> None:
    """Bans are stored a quarter of a second after they begin."""
    await add_key(store, "one")
    await store.keys.rotate("key_one", successor("two"), 9_000.0, Actor("operator:x", 2_000.2))
    await store.keys.rotate("key_two", successor("three"), 9_000.0, Actor("operator:x", 2_000.3))
    version = await store.access_version()
    ban = Ban("key_one", 2_000, 2_120, 1)
    await store.usage.save({}, [ban])
    assert await store.access_version() != version
    banned = sorted(await store.usage.bans(), key=lambda one: one.key_id)
    assert [ban, replace(ban, key_id="key_three"), replace(ban, key_id="key_two")] == banned
    await store.usage.save({}, [Ban("key_one", 2_300, 2_540, 2)])  # of the old key, after the rotation
    assert replace(ban, key_id="key_two") == (await store.keys.find("key_two")).ban


async def test_expired_revoked_and_rotated_keys_cannot_be_rotated(store: Store) -> None:
    await add_key(store, "rotated")
    for name, expires_at in (("expired", NOW), ("revoked", None)):
        await store.keys.create(replace(api_key(name), expires_at=expires_at), BY)
    await store.keys.change("key_revoked", revoke(BY.at), BY)
    await store.keys.rotate("key_rotated", successor("next"), 3_000.0, BY)
    for name, reason in (("expired", "expired"), ("revoked", "revoked"), ("rotated", "rotated to key_next")):
        with pytest.raises(KeyNotUsable, match=reason):
            await store.keys.rotate(f"key_{name}", successor("new"), 3_000.0, Actor("operator:x", NOW))
    assert 4 == len(await store.keys.list())


async def test_unbanning_forgets_the_ban_and_only_a_ban_in_force_can_be_lifted(store: Store) -> None:
    key = await add_key(store)
    ban = Ban(key.id, 2_000, 2_120, 1)
    await store.usage.save({}, [ban])
    assert ban == (await store.keys.find(key.id)).ban
    with pytest.raises(KeyNotBanned):
        await store.keys.change(key.id, unban(2_120.0), Actor("operator:x", 2_120.0))
    assert key == await store.keys.change(key.id, unban(2_119.0), Actor("operator:x", 2_119.0))
    assert [] == await store.usage.bans()
    with pytest.raises(KeyNotBanned):
        await store.keys.change(key.id, unban(2_119.0), Actor("operator:x", 2_119.0))


async def test_only_keys_that_would_work_without_their_ban_count_as_banned(store: Store) -> None:
    await add_key(store, "good", "zoo")
    await add_key(store, "paused", "quiet")
    for name in ("revoked", "ending"):
        await store.keys.create(api_key(name, "zoo"), BY)
    await store.keys.rotate("key_ending", successor("next"), 2_060.0, BY)
    await store.keys.change("key_revoked", revoke(BY.at), BY)
    bans = [Ban(f"key_{each}", 2_000, 2_120, 1) for each in ("good", "revoked", "ending", "paused")]
    await store.usage.save({}, bans)

    async def banned(now: float) -> list[str]:
        found = [key.id for key in (await store.keys.banned(now, 9)).items]
        keys = [key for key in await store.keys.list() if key.is_banned(now)]
        assert found == sorted(key.id for key in keys)
        accounts = [await store.accounts.find(name) for name in {key.account for key in keys}]
        assert {account.id for account in accounts} == await store.keys.banned_accounts(now)
        return found

    began = 2_000 - CLOCK_TOLERANCE
    assert [[], ["key_ending", "key_good", "key_paused"]] == [await banned(began - 1), await banned(began)]

    assert ["key_ending", "key_good", "key_paused"] == await banned(2_059)
    assert ["key_good", "key_paused"] == await banned(2_060)
    await store.accounts.change("quiet", suspend(2_061), BY)
    assert ["key_good"] == await banned(2_061)
    assert [] == (await store.keys.banned(2_061, 9, name="quiet")).items
    # The ban goes on while the account is suspended, and can be lifted before it is resumed.
    await store.accounts.change("quiet", RESUME, BY)
    assert ["key_good", "key_paused"] == await banned(2_061)
    await store.accounts.change("quiet", suspend(2_062), BY)
    await store.keys.change("key_paused", unban(2_063.0), Actor("operator:x", 2_063.0))
    await store.accounts.change("quiet", RESUME, BY)
    assert [["key_good"], ["key_good"], []] == [await banned(now) for now in (2_063, 2_119, 2_120)]


async def test_usage_and_bans_are_kept_as_last_saved_without_those_of_what_is_not_there(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        key = await add_key(store)
        usage = Usage(Count(100, 5), Count(90, 500))
        assert Usage() == await store.usage.find(1)
        await store.usage.save({1: Usage(Count(1, 1), Count(1, 1))}, [Ban(key.id, 1, 2, 1)])
        gone = Activity({(99, 0, "getPet"): UsageCounts(1)}, {}, {"key_gone": 0})  # of what a restore took away
        await store.usage.save({1: usage, 99: usage}, [Ban(key.id, 3, 4, 2), Ban("key_gone", 1, 2, 1)], gone)
    async with each_backend.opened() as store:
        assert usage == await store.usage.find(1)
        assert {1: usage} == await store.usage.all()
        assert [Ban(key.id, 3, 4, 2)] == await store.usage.bans()
        assert {} == await store.usage.totals(0, 1)
        assert {} == await store.usage.users(0)


async def test_every_change_of_access_is_recorded_and_heard_and_nothing_else_is_heard(each_backend: Stores) -> None:
    async with each_backend.opened() as store, each_backend.opened() as other:
        heard = {await other.access_version()}
        key = await add_key(store)  # two changes
        heard.add(await other.access_version())
        ban = Ban(key.id, 1_000, 9_000, 1)
        for change in (
            store.accounts.change("zoo", set_plan(Plan.ENTERPRISE, Limits(5, 50)), BY),
            store.accounts.change("zoo", suspend(BY.at), BY),
            store.accounts.change("zoo", RESUME, BY),
            store.usage.save({}, [ban]),
            store.keys.change(key.id, unban(BY.at), BY),
            store.keys.rotate(key.id, successor("two"), 3_000.0, BY),
            store.keys.change(key.id, revoke(BY.at), BY),
        ):
            await change
            heard.add(await other.access_version())
        assert 9 == len(heard)
        await store.usage.save({1: Usage(Count(1, 1), Count(1, 1))}, [])
        await store.check()
        assert await other.access_version() in heard
        await store.usage.save({}, [ban])
        heard.add(version := await other.access_version())
        await store.usage.save({}, [ban])  # the same again is nothing new
        assert (10, version) == (len(heard), await other.access_version())
        for _ in range(2):  # which with its key is one change, and then none
            await store.accounts.close_account("zoo", BY)
            assert version.changes + 1 == (await other.access_version()).changes
        entries = (await log(store))[:9]
    free = {"plan": "free", "per_minute": 60, "per_day": 1_000}
    seen = {"orders": "all"}
    created = {"account": "zoo", "environment": "production", "note": "", "expires_at": None}
    banned = {"began": 1_000, "until": 9_000, "level": 1}
    rotated = {"expires_at": 3_000.0, "rotated_to": "key_two"}
    assert [
        ("account.create", "account:zoo", None, free | seen),
        ("key.create", "key:key_one", None, {**created, "scopes": sorted(DEFAULT_SCOPES)}),
        ("account.set_plan", "account:zoo", free, {"plan": "enterprise", "per_minute": 5, "per_day": 50}),
        ("account.suspend", "account:zoo", {"suspended_at": None}, {"suspended_at": 1_000.0}),
        ("account.resume", "account:zoo", {"suspended_at": 1_000.0}, {"suspended_at": None}),
        ("key.ban", "key:key_one", None, {**banned, "reason": "requests that ignored Retry-After"}),
        ("key.unban", "key:key_one", {"ban": banned}, {"ban": None}),
        ("key.rotate", "key:key_one", {"expires_at": None, "rotated_to": None}, rotated),
        ("key.revoke", "key:key_one", {"revoked_at": None}, {"revoked_at": 1_000.0}),
    ] == [(entry.action, entry.subject, entry.before, entry.after) for entry in entries]
    assert {BY} == {Actor(entry.actor, entry.at) for entry in entries if entry.action != "key.ban"}
