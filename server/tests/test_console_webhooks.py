"""Webhooks in the console: what the pages show, each action and its audit entry, conflicts, bad input (D24)."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from petstore_server.domain.lists import Position
from petstore_server.domain.orders import Order
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.transitions import Transition
from petstore_server.domain.webhooks import Attempt, Webhook, WebhookState
from testing.console import START, Browser, Console
from testing.stores import BY
from testing.threaded_receiver import ThreadedReceiver, receiving
from testing.webhook_messages import SETTINGS

pytestmark = [pytest.mark.settings(**SETTINGS), pytest.mark.usefixtures("zoo")]
ADA = "operator:ada"
HOOK = "https://192.0.2.1.example/hook?token=query"
BUTTONS = ">(Ping|Pause|Resume|Replay|Rotate|Delete)<"
FAILING: dict[str, Any] = {
    "failures": 2,
    "failing_since": START - HOUR,
    "attempts": (
        Attempt(START - HOUR, 500, 12, "<b>oh</b>"),
        Attempt(START - 60, None, 15_000, "no response: refused"),
    ),
    "next_at": START + 300,
}


@pytest.fixture(name="receiver")
def _receiver() -> Iterator[ThreadedReceiver]:
    with receiving() as receiver:
        yield receiver


async def add_webhook(console: Console, url: str = "https://shop.example/hook", seconds: int = 0) -> str:
    """A webhook of the account zoo, created these seconds after the start."""
    return (await console.sources.webhooks.create_for("zoo", url, BY._replace(at=START + seconds))).webhook.id


async def change(console: Console, webhook_id: str, **fields: Any) -> Webhook:
    transition: Transition[Webhook] = Transition("webhook.edit", lambda webhook: replace(webhook, **fields))
    return await console.store.webhooks.change(webhook_id, transition, BY._replace(at=START))


async def actions(console: Console) -> list[tuple[str, str]]:
    """What the first operator did, and to which webhooks."""
    return [(action, subject) for who, action, subject in await console.actions() if who == ADA]


def secret(page: str) -> str:
    [found] = set(re.findall(r"whsec_[\w+/=]{44}", page))
    return str(found)


@pytest.mark.usefixtures("each_backend")
async def test_a_webhook_is_created_and_its_secret_is_shown_once(console: Console, browser: Browser) -> None:
    assert "This account has no webhooks." in await browser.get("/accounts/zoo")
    page = await browser.submit("/accounts/zoo/webhooks", {"url": HOOK, "status": ["cancelled", "shipped", "x"]})
    assert "The webhook was created This is the secret of the webhook wh_" in page
    shown = secret(browser.page)
    [webhook] = await console.store.webhooks.of_account()
    assert (HOOK, ("shipped", "cancelled")) == (webhook.url, webhook.statuses)
    assert [("webhook.create", f"webhook:{webhook.id}")] == await actions(console)
    for path in ("/accounts/zoo", f"/webhooks/{webhook.id}", "/audit"):
        page = await browser.get(path)
        assert shown not in page
        assert "query" not in browser.page, "the query of a URL may be a secret"
    assert f'href="/console/webhooks/{webhook.id}"' in browser.page
    assert "shipped, cancelled" in await browser.get(f"/webhooks/{webhook.id}")


@pytest.mark.parametrize("url", ["", "https://10.0.0.1/"])
async def test_a_url_that_is_refused_is_a_problem_of_its_field(url: str, console: Console, browser: Browser) -> None:
    await browser.submit("/accounts/zoo/webhooks", {"url": url, "status": "cancelled"}, 400)
    [(field, text)] = browser.problems
    assert "webhook-url" == field
    assert text.startswith("The URL is refused: ")
    assert 'name="status" value="cancelled" checked' in browser.page, "what was chosen stays"
    assert [] == await console.store.webhooks.of_account()


@pytest.mark.usefixtures("each_backend")
async def test_the_page_of_an_account_lists_its_webhooks(console: Console, browser: Browser) -> None:
    healthy, failing = await add_webhook(console), await add_webhook(console, "https://bad.example/", 1)
    await change(console, healthy, attempts=(Attempt(START - 60, 204, 9, ""),))
    await change(console, failing, **FAILING)
    await console.store.orders.import_batch([Order(1)], "import:1", BY._replace(at=START))
    console.clock.now = 4_000_000_000.0  # decades after the order was stored
    await browser.sign_in()
    await browser.get("/accounts/zoo")
    [card] = [card for card in browser.cards if card.startswith("Webhooks ")]
    columns = "Webhook State Lag Failing since Last attempt Actions"
    buttons = "Ping Pause Rotate Delete"
    lag, at = r"\d[\d,]* d", r"2026-10-26 \d\d:\d\d"
    assert re.fullmatch(
        rf"Webhooks {columns} {healthy} https://shop.example/hook active {lag} – {at} : 204 {buttons} "
        rf"{failing} https://bad.example/ active failing {lag} {at} {at} : no response: "
        rf"refused Ping Pause Try now Rotate Delete",
        card,
    )


async def test_the_page_of_a_webhook_shows_its_attempts_and_changes(console: Console, browser: Browser) -> None:
    webhook = await add_webhook(console)
    await change(console, webhook, **FAILING)
    page = await browser.get(f"/webhooks/{webhook}")
    assert "Accounts › zoo" in page
    facts, last, replay, changes = browser.cards
    assert re.search(r"Lag none Last success – Failing since .* \(1 h ago\) Next attempt .* \(in 5 min\)", facts)
    assert re.search(r"\(1 min ago\) no response 15,000 no response: refused .* \(1 h ago\) 500 12 <b>oh</b>$", last)
    assert "Deliver again Changes since" in replay
    assert "Created the webhook" in changes
    assert "&lt;b&gt;oh" in browser.page
    for state, text in (
        (WebhookState.STOPPED, "It was stopped after three days of failures."),
        (WebhookState.ENDED, "It has ended: its receiver has answered 410, or the account is closed."),
    ):
        await change(console, webhook, state=state)
        assert text in await browser.get(f"/webhooks/{webhook}")
    assert ["Delete"] == re.findall(BUTTONS, browser.page)


@pytest.mark.usefixtures("each_backend")
async def test_a_webhook_is_paused_resumed_and_replayed(console: Console, browser: Browser) -> None:
    webhook = await add_webhook(console)
    page = await browser.submit(f"/webhooks/{webhook}/pause")
    assert f"Paused {webhook}: nothing is delivered until you resume it." in page
    assert WebhookState.PAUSED is (await console.store.webhooks.find(webhook)).state
    await change(console, webhook, position=Position(int(START * 1_000_000), 1))
    page = await browser.submit(f"/webhooks/{webhook}/replay", {"since": "24h"})
    assert re.search(r"every order that has changed since 2026-\S+ \S+ again as soon as it delivers again\.", page)
    found = await console.store.webhooks.find(webhook)
    assert (int((START - DAY) * 1_000_000) - 1, 1) == (found.position.value, found.replay)
    assert f"Resumed {webhook}: it goes on where it was." in await browser.submit(f"/webhooks/{webhook}/resume")
    await change(console, webhook, failures=1, failing_since=START, next_at=START + DAY)
    assert "Try now" in await browser.get(f"/webhooks/{webhook}")
    await browser.submit(f"/webhooks/{webhook}/resume")
    found = await console.store.webhooks.find(webhook)
    assert (0.0, START) == (found.next_at, found.failing_since)
    assert " again." in await browser.submit(f"/webhooks/{webhook}/replay", {"since": "2026-10-01"})
    assert [("webhook.edit", f"webhook:{webhook}")] * 5 == await actions(console)


@pytest.mark.parametrize(
    ("since", "problem"),
    [
        ("", "Give a time, such as 24h (ago)"),
        ("soon", "'soon' is not a time"),
        ("2099-01-01", "A replay cannot"),
    ],
)
async def test_a_wrong_time_of_a_replay_is_a_problem_of_its_field(
    since: str, problem: str, console: Console, browser: Browser
) -> None:
    webhook = await add_webhook(console)
    await browser.submit(f"/webhooks/{webhook}/replay", {"since": since}, 400)
    [(field, text)] = browser.problems
    assert "replay-since" == field
    assert text.startswith(problem)


async def test_a_ping_shows_what_was_sent_and_what_came_back(
    console: Console, browser: Browser, receiver: ThreadedReceiver
) -> None:
    webhook = await add_webhook(console, f"{receiver.url}?token=query")
    receiver.text = "<i>thanks</i>"
    page = await browser.submit(f"/webhooks/{webhook}/ping")
    [received] = receiver.received
    assert "/hook?token=query" == received.target
    assert "The ping was answered" in page
    assert re.search(r"What came back Status 200, after [\d,]+ ms\. <i>thanks</i>", page)
    assert f"POST {receiver.url} " in page
    assert all(f"{name}: {value}" in page for name, value in received.headers.items())
    assert received.body.decode() in page
    assert "query" not in browser.page
    receiver.status = 500
    assert "The ping was answered with an error" in await browser.submit(f"/webhooks/{webhook}/ping")
    refused = await add_webhook(console, "http://127.0.0.1:1/")
    page = await browser.submit(f"/webhooks/{refused}/ping")
    assert "The ping got no response" in page
    assert "no response: no connection" in page
    assert [("webhook.ping", f"webhook:{each}") for each in (webhook, webhook, refused)] == await actions(console)
    assert () == (await console.store.webhooks.find(webhook)).attempts


async def test_a_secret_is_replaced_and_the_old_one_signs_for_a_time(
    console: Console, browser: Browser, receiver: ThreadedReceiver
) -> None:
    await browser.submit("/accounts/zoo/webhooks", {"url": receiver.url})
    secrets = [secret(browser.page)]
    [webhook] = [each.id for each in await console.store.webhooks.of_account()]
    assert "The old secret ends at once in 1 hour in 24 hours" in await browser.get(f"/webhooks/{webhook}/rotate")
    for grace, shown, signing in (
        ("1h", r"signed with the old secret as well until \S+ \S+ \(in (59 min|1 h)\) \.", [True, True]),
        ("0", r"The old secret does not sign any more\.", [False, False, True]),
    ):
        page = await browser.submit(f"/webhooks/{webhook}/rotate", {"grace": grace})
        assert re.search(shown, page)
        secrets.append(secret(browser.page))
        await browser.submit(f"/webhooks/{webhook}/ping")
        assert signing == [*map(receiver.received[-1].is_signed, secrets)]
    await browser.submit(f"/webhooks/{webhook}/rotate", {"grace": "7d"}, 400)
    assert 2 == (await actions(console)).count(("webhook.rotate", f"webhook:{webhook}"))


async def test_a_webhook_is_deleted_after_a_question(console: Console, browser: Browser) -> None:
    webhook = await add_webhook(console, HOOK)
    question = await browser.get(f"/webhooks/{webhook}/delete")
    assert f"Delete {webhook}? Nothing more is sent to https://192.0.2.1.example/hook, and its secret" in question
    assert f"Deleted the webhook {webhook}." in await browser.submit(f"/webhooks/{webhook}/delete")
    assert "This account has no webhooks." in await browser.get("/accounts/zoo")
    assert "Deleted the webhook" in browser.page, "the changes of an account are also those of its deleted webhooks"
    assert "2 changes match." in await browser.get(f"/audit?subject={webhook}")
    assert f"There is no webhook {webhook}" in await browser.get(f"/webhooks/{webhook}", 404)


async def test_a_conflict_says_that_nothing_was_changed(console: Console, browser: Browser) -> None:
    webhook = await add_webhook(console)
    await change(console, webhook, state=WebhookState.ENDED)
    for action in ("pause", "resume", "ping", "rotate"):
        page = await browser.submit(f"/webhooks/{webhook}/{action}", {}, 409)
        assert f"Webhook {webhook} has ended; delete it, and create another one." in page
        assert f"The last changes of {webhook}" in page
        await browser.get(f"/webhooks/{webhook}")
    for _ in range(19):
        await add_webhook(console)
    page = await browser.submit("/accounts/zoo/webhooks", {"url": "https://shop.example/"}, 409)
    assert "There are 20 webhooks already" in page


@pytest.mark.settings
async def test_without_the_secret_webhooks_are_shown_and_no_button_needs_it(console: Console, browser: Browser) -> None:
    assert "They are off, because PETSTORE_WEBHOOK_SECRET is not set." in await browser.get("/accounts/zoo")
    assert "Create webhook" not in browser.page
    account = await console.store.accounts.find("zoo")
    stored = Webhook("wh_1", account.id, "zoo", "https://shop.example/", START)
    await console.store.webhooks.create(stored, "digest", BY)
    assert "Nothing is delivered, because PETSTORE_WEBHOOK_SECRET is not set." in await browser.get("/webhooks/wh_1")
    assert ["Pause", "Delete", "Replay"] == re.findall(BUTTONS, browser.page)
    page = await browser.submit("/webhooks/wh_1/ping", {}, 503)
    assert "Webhooks are off: PETSTORE_WEBHOOK_SECRET is not set." in page


async def test_a_replay_of_a_session_that_ended_is_shown_again_while_it_is_possible(
    console: Console, browser: Browser
) -> None:
    webhook = await add_webhook(console)
    await browser.get(f"/webhooks/{webhook}")
    typed = {"form_token": browser.form_token, "since": "36h"}
    await console.store.sessions.end_all(BY)
    assert "what you typed is kept" in await browser.submit(f"/webhooks/{webhook}/replay", typed, 401)
    await browser.sign_in()
    assert "What you had typed" in await browser.get(f"/webhooks/{webhook}")
    assert 'name="since" type="text" value="36h"' in browser.page
    await change(console, webhook, state=WebhookState.ENDED)
    assert "What you had typed" not in await browser.get(f"/webhooks/{webhook}")


async def test_a_secret_that_another_operator_has_just_replaced_stays(console: Console, browser: Browser) -> None:
    webhook = await add_webhook(console)
    await browser.get(f"/webhooks/{webhook}/rotate")
    seen, token = browser.hidden("seen"), browser.form_token
    bob = await console.another_browser().sign_in("bob")
    await bob.get(f"/webhooks/{webhook}/rotate")
    await bob.submit(f"/webhooks/{webhook}/pause")
    new = secret(await bob.submit(f"/webhooks/{webhook}/rotate", {"seen": seen, "form_token": bob.form_token}))
    typed = {"seen": seen, "grace": "0", "form_token": token}
    page = await browser.submit(f"/webhooks/{webhook}/rotate", typed, 409)
    assert "This was changed meanwhile, so nothing was done." in page
    assert new == console.sources.webhooks.signing.shown(await console.store.webhooks.find(webhook))


@pytest.mark.usefixtures("each_backend")
async def test_a_pause_by_another_operator_stays(console: Console, browser: Browser) -> None:
    webhook = await add_webhook(console)
    await change(console, webhook, **FAILING)
    bob = await console.another_browser().sign_in("bob")
    for page in ("/accounts/zoo", f"/webhooks/{webhook}"):
        await browser.get(page)
        stale = {"form_token": browser.form_token, "seen": browser.hidden("seen")}
        await bob.get(page)
        await bob.submit(f"/webhooks/{webhook}/pause", {"seen": bob.hidden("seen")})
        text = await browser.submit(f"/webhooks/{webhook}/resume", stale, 409)
        assert "This was changed meanwhile, so nothing was done." in text
        assert "state active → paused" in text
        assert WebhookState.PAUSED is (await console.store.webhooks.find(webhook)).state
        await browser.get(page)
        now = {"seen": browser.hidden("seen")}
        assert f"Resumed {webhook}" in await browser.submit(f"/webhooks/{webhook}/resume", now)
        await change(console, webhook, **FAILING)
