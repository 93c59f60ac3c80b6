"""Keys and bans in the console: what the pages show, each action and its audit entry, conflicts."""

import re
from dataclasses import replace

import pytest

from petstore_server.domain.accounts import suspend
from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import Environment, digest, is_well_formed, new_key, revoke
from petstore_server.domain.timestamps import DAY
from petstore_server.operations.health import CheckResult, check_partners
from testing.console import START, Browser, Console
from testing.stores import BY, add_key, api_key, log, successor

pytestmark = pytest.mark.usefixtures("zoo")
ADA = "operator:ada"
NOT_WORKING = "Lifted the ban of key_{}, which still does not work: it is {}."
MISSING = "There is no key with the id ."


def secret(page: str) -> str:
    found: list[str] = re.findall(r"pso_live_\w+", page)
    return found[0]


async def test_a_key_is_created_and_shown_once(console: Console, browser: Browser) -> None:
    page = await browser.submit("/accounts/zoo/keys", {"scope": ["orders:read"], "note": "till", "expires": "90d"})
    key = secret(page)
    assert is_well_formed(key)
    stored = (await console.store.keys.list("zoo"))[-1]
    assert (digest(key), "till", START + 90 * 86_400) == (stored.digest, stored.note, stored.expires_at)
    assert ["orders:read"] == [str(scope) for scope in stored.scopes]
    assert key not in await browser.get("/accounts/zoo")
    assert (ADA, "key.create", f"key:{stored.id}") == (await console.actions())[-1]


@pytest.mark.parametrize(
    ("grace", "seconds"), [("1h", 3600), ("24h", DAY), ("", DAY), ("7d", 7 * DAY), ("30d", 30 * DAY)]
)
async def test_a_key_is_rotated_once(grace: str, seconds: int, console: Console, browser: Browser) -> None:
    assert "Choose when the old key ends." in await browser.submit("/keys/key_one/rotate", {"grace": "2h"}, 400)
    assert "Rotate key_one?" in await browser.get("/keys/key_one/rotate")
    assert "at once?" not in browser.page
    page = await browser.submit("/keys/key_one/rotate", {"grace": grace})
    old, new = sorted(await console.store.keys.list("zoo"), key=lambda key: key.rotated_from or "")
    assert (digest(secret(page)), "key_one", START + seconds) == (new.digest, new.rotated_from, old.expires_at)
    assert "already rotated" in await browser.submit("/keys/key_one/rotate", {"grace": "1h"}, 409)
    assert "already rotated" in await browser.get("/keys/key_one/rotate", 409)


async def test_a_page_offers_rotation_for_the_keys_that_can_be_rotated(console: Console, browser: Browser) -> None:
    keys, by = console.store.keys, Actor("operator:ann", START)
    for name, expires_at in (("rotated", None), ("revoked", None), ("expired", START), ("expiring", START + 60)):
        await keys.create(replace(api_key(name), expires_at=expires_at), by)
    await keys.rotate("key_rotated", successor("new"), START + 60, by)
    await keys.change("key_revoked", revoke(START), by)
    await browser.get("/accounts/zoo")
    offered = set(re.findall(r'action="/console/keys/(\w+)/rotate"', browser.page))
    assert {"key_one", "key_expiring", "key_new"} == offered


async def test_a_key_is_revoked_after_asking(console: Console, browser: Browser) -> None:
    assert "Revoke key_one?" in await browser.get("/keys/key_one/revoke")
    seen = browser.hidden("seen")
    assert "Revoked key_one." in await browser.submit("/keys/key_one/revoke", {"seen": seen})
    assert START == (await console.store.keys.find("key_one")).revoked_at
    assert (ADA, "key.revoke", "key:key_one") == (await console.actions())[-1]
    page = await browser.submit("/keys/key_one/revoke", {"seen": seen}, 409)
    assert "The last changes of key_one Revoked the key key_one operator ada" in page
    assert 'href="/console/keys/key_one">Show <bdi>key_one</bdi> as it is now' in browser.page
    entries = await console.actions()
    console.clock.now += 60
    await browser.get("/keys/key_one/revoke")
    page = await browser.submit("/keys/key_one/revoke", {"seen": browser.hidden("seen")})
    assert "Nothing was changed: key_one was revoked already." in page
    assert entries == await console.actions()


async def test_a_ban_is_shown_and_lifted(console: Console, browser: Browser) -> None:
    await console.store.usage.save({}, [Ban("key_one", int(START) - 10, int(START) + 110, 2)])
    page = await browser.get("/keys/key_one")
    assert "Account zoo Environment production Scopes orders:cancel, orders:read, pets:read Created" in page
    assert "This key is banned from" in page
    assert "requests within 10 minutes that did not wait for the" in page
    assert "It is ban 2 in a row; each is longer." in page
    assert "Changes of the key Banned the key" in page
    assert ["rotate", "revoke", "unban"] == re.findall(r'action="/console/keys/key_one/(\w+)"', browser.page)
    assert "banned" in await browser.get("/accounts/zoo")
    assert "Lifted the ban of key_one" in await browser.submit("/keys/key_one/unban")
    assert "No key is banned." in await browser.get("/")
    assert (ADA, "key.unban", "key:key_one") == (await console.actions())[-1]
    page = await browser.get("/audit?action=key.unban")
    assert re.search(r"ban began [\d-]+ [\d:]+, until [\d-]+ [\d:]+, level 2 → –", page)
    assert "is not banned" in await browser.submit("/keys/key_one/unban", status=409)


@pytest.mark.parametrize("state", ["revoked", "suspended"])
async def test_a_key_that_ended_meanwhile_is_not_said_to_work_again(
    state: str, console: Console, browser: Browser
) -> None:
    for number in "23":
        await console.store.keys.create(api_key(number), BY)
    bans = [Ban(f"key_{name}", int(START) - 10, int(START) + 110, 1) for name in ("one", "2", "3")]
    await console.store.usage.save({}, bans)
    await browser.get("/bans")
    if state == "suspended":
        await console.store.accounts.change("zoo", suspend(START), BY)
    else:
        for name in ("one", "2"):
            await console.store.keys.change(f"key_{name}", revoke(START), BY)
    await browser.submit("/keys/key_one/unban")
    assert ("warn", [NOT_WORKING.format("one", state)]) == browser.notice
    await browser.get("/")
    await browser.submit("/bans", {"key": ["key_2", "key_3"]})
    third = "Lifted 1 ban; these keys work again within a second."
    lines = [NOT_WORKING.format("2", state), NOT_WORKING.format("3", state)]
    assert ("warn", lines if state == "suspended" else [third, lines[0]]) == browser.notice


async def test_a_key_is_found_by_itself_and_stays_out_of_addresses_and_logs(
    caplog: pytest.LogCaptureFixture, console: Console, browser: Browser
) -> None:
    caplog.set_level("DEBUG")
    new = secret(await browser.submit("/accounts/zoo/keys", {"scope": "orders:read", "note": "leaked"}))
    await browser.get("/")
    (found,) = [key for key in await console.store.keys.list("zoo") if key.note == "leaked"]
    for _ in range(2):  # it changes nothing, so the same form works again
        for text in (new, new.removeprefix("pso_live_")):
            assert f"/console/keys/{found.id}" == await browser.led_to("/search", {"q": f"  {text} "})
    for text, status, shown in (
        (new_key(Environment.PRODUCTION, lambda _: 1), 404, "This key is not in this store."),
        (new[:-1], 400, "its form or its checksum is wrong"),
        (new.removeprefix("pso_live_")[2:], 404, "No order, key, webhook, import"),
    ):
        assert shown in await browser.submit("/search", {"q": text}, status)
        assert text not in browser.page
        await browser.get("/")
    assert new[:-1] not in caplog.text
    assert new not in repr(await log(console.store))


async def test_rotating_a_key_that_ends_at_once_asks_first(console: Console, browser: Browser) -> None:
    assert "and end it at once?" in await browser.submit("/keys/key_one/rotate", {"grace": "0s"})
    assert 1 == len(await console.store.keys.list("zoo"))
    confirmed = {"grace": "0s", "confirmed": browser.hidden("confirmed")}
    assert "The key was rotated" in await browser.submit("/keys/key_one/rotate", confirmed)
    assert START == (await console.store.keys.find("key_one")).expires_at


@pytest.mark.usefixtures("each_backend")
async def test_the_keys_of_an_account_are_paged_and_filtered(console: Console, browser: Browser) -> None:
    for number in range(30):
        await console.store.keys.create(api_key(f"k{number:02}"), BY)
    ended = [f"key_k{number:02}" for number in range(10)]
    for key in ended:
        await console.store.keys.change(key, revoke(START), BY)
    for query, matches, shown, unusable in (
        ("", "31 keys.", 25, 4),
        ("?page=99", "31 keys.", 6, 6),
        ("?keys=usable", "21 keys match.", 21, 0),
        ("?keys=ended", "10 keys match.", 10, 10),
    ):
        assert matches in await browser.get(f"/accounts/zoo{query}")
        found = set(re.findall(r'<tr id="(\w+)"', browser.page))
        assert (shown, unusable) == (len(found), len(found.intersection(ended)))


@pytest.fixture
async def sixty_bans(console: Console) -> None:
    """The account zoo with 60 banned keys, of which key_k59 is banned longest, and one whose ban has ended."""
    for number in range(60):
        await console.store.keys.create(api_key(f"k{number:02}"), BY)
    now = int(START)
    bans = [Ban(f"key_k{number:02}", now - 10, now + 110 + number, 1) for number in range(60)]
    await console.store.usage.save({}, [*bans, Ban("key_one", now - 500, now - 1, 1)])


@pytest.mark.usefixtures("each_backend")
async def test_many_bans_are_one_warning_and_the_first_of_them(
    sixty_bans: None, console: Console, browser: Browser
) -> None:
    [warning] = [each.message async for each in check_partners(console.store, START) if each.check == "bans"]
    assert warning.startswith("60 keys are banned; key_k59 of zoo longest, until ")
    page = await browser.get("/accounts/zoo")
    assert 3 == page.count("is banned from")
    assert "All 60 banned keys of this account" in page
    await console.check()
    overview = await browser.get("/")
    assert "All 60 banned keys" in overview
    assert 7 == overview.count("until 2026")  # five keys, and twice what the check says
    assert "1 account matches." in await browser.get("/accounts?state=banned")
    assert "No account matches" in await browser.get("/accounts?state=suspended")


@pytest.mark.usefixtures("each_backend")
async def test_bans_are_paged_and_searched(sixty_bans: None, browser: Browser) -> None:
    first = await browser.get("/bans")
    assert "60 banned keys" in first
    assert "key_k59" in first
    for query, shown in (("", 50), ("?page=2", 10), ("?page=99", 10), ("?name=key_k07", 1), ("?name=acme", 0)):
        assert shown == (await browser.get(f"/bans{query}")).count("Lift ban"), query
    await browser.get("/bans?select=all")
    assert 50 == browser.page.count(" checked>")
    assert "60 banned keys match." in await browser.get("/bans?name=zoo")
    assert "is banned. Show all" in await browser.get("/bans?name=acme")


@pytest.mark.parametrize(
    ("chosen", "kind", "first", "others"),
    [
        (["k07", "k08", "k08", "k11"], "ok", "Lifted 3 bans; these keys work again within a second.", []),
        (["one"], "warn", "Nothing was changed.", ["Key key_one is not banned"]),
        (["k10", *"123456789"], "warn", "Lifted 1 ban; these keys work again within a second.", [MISSING] * 5),
    ],
)
async def test_the_bans_of_the_selected_keys_are_lifted(
    chosen: list[str], kind: str, first: str, others: list[str], sixty_bans: None, browser: Browser
) -> None:
    await browser.get("/bans")
    await browser.submit("/bans", {"key": [f"key_{name}" for name in chosen]})
    shown, lines = browser.notice
    assert (kind, first) == (shown, lines[0])
    assert others == [re.sub(r"'\w+'|;.*", "", problem) for problem in lines[1:]]
    await browser.get("/bans")
    assert "No key is selected" in await browser.submit("/bans", {}, 400)


@pytest.mark.usefixtures("each_backend")
async def test_a_warning_leads_to_where_its_cause_is_removed(console: Console, browser: Browser) -> None:
    await console.store.keys.create(replace(api_key("two"), expires_at=START + 7 * DAY - 1), BY)
    await console.store.keys.create(replace(api_key("three"), expires_at=START + 7 * DAY), BY)
    await add_key(console.store, "other", "Zoo & Co")

    async def examine() -> list[CheckResult]:
        return [each async for each in check_partners(console.store, START)]

    console.sources.monitor._examine = examine
    page = await browser.submit("/check")
    assert "Healthy, with 1 warning warn keys Key key_two of zoo expires at" in page
    assert '<a href="/console/keys/key_two">Rotate</a>' in browser.page
    assert "1 recommendation warn orders Accounts that see all orders and may cancel them: 2 of 2." in page
    assert '<a href="/console/accounts/Zoo%20%26%20Co#orders-title">Restrict</a>' in browser.page
    assert not re.search("petstore (keys|accounts)", page)
