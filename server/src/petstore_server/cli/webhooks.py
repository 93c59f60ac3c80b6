"""`petstore webhooks`: the webhooks of accounts. A secret is shown once, when it is made."""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from petstore_server.cli.arguments import PAST, Parsed
from petstore_server.cli.commands import ACCOUNT_NAME, YES, Noun, Stored, confirm, operator, settings_here, with_store
from petstore_server.cli.failures import FAILURE
from petstore_server.cli.output import comment, details, plural, show, show_done, show_secret, table, warn_of_suspension
from petstore_server.domain.errors import Conflict
from petstore_server.domain.orders import Status
from petstore_server.domain.timestamps import format_unix, parse_duration
from petstore_server.domain.webhooks import MAX_GRACE, Attempt, Webhook, WebhookState
from petstore_server.operations.webhooks import Revealed, Start, WebhookService
from petstore_server.runtime.opening import is_served, store_file, webhook_service
from petstore_server.settings import SettingsError
from petstore_server.store import Store
from petstore_server.webhooks.addresses import Addresses

if TYPE_CHECKING:
    from petstore_server.webhooks.sending import Exchange

T = TypeVar("T")

_OFF = "PETSTORE_WEBHOOK_SECRET is not set, so webhooks are off; set it as for the server, and run this again."
_SERVED = "A server runs on this store, and would go on to sign with the old secret; stop the service first."
_REPLACE_ALL = (
    "Replace the secrets of all webhooks? The old ones end now: receivers refuse messages until they are given"
)
_COLUMNS = ("ID", "ACCOUNT", "URL", "STATE", "LAG", "FAILING SINCE", "LAST ATTEMPT", "STATUS")
_STATUSES = "Only orders that are in this status; repeat for several. All if not given."


def _grace(text: str) -> int:
    seconds = int(text) if text.isdecimal() and len(text) <= 9 else parse_duration(text)
    if seconds > MAX_GRACE:
        raise ValueError(f"is longer than {MAX_GRACE // 3600} hours, the longest time")
    return seconds


GRACE = Parsed("seconds", _grace)
WEBHOOK_ID = Stored("id", str, lambda store: store.webhooks.of_account())
ID = click.Argument(["webhook_id"], metavar="ID", type=WEBHOOK_ID)

webhooks = Noun("webhooks", "$ petstore webhooks create acme https://shop.example/petstore")


@webhooks.command("list")
@click.argument("account", required=False, type=ACCOUNT_NAME)
def list_webhooks(account: str | None) -> None:
    """List the webhooks of ACCOUNT, or of all accounts, oldest first.

    The lag is the age of the oldest undelivered change. The table shows URLs without their queries; JSON has them.

    $ petstore webhooks list acme
    """

    async def read(service: WebhookService) -> list[dict[str, Any]]:
        account_id = None if account is None else (await service.store.accounts.find(account)).id
        return [await _fields(service, each) for each in await service.store.webhooks.of_account(account_id)]

    listed = _with_service(read)
    show(listed, lambda: table(_COLUMNS, list(map(_row, listed)), shrinks=["URL"]))


@webhooks.command("show", params=[ID])
def show_webhook(webhook_id: str) -> None:
    """Show the webhook ID, with its last attempts; its secret is not shown again.

    $ petstore webhooks show wh_3kTMd9QxBv1a
    """

    async def read(service: WebhookService) -> dict[str, Any]:
        return await _fields(service, await service.store.webhooks.find(webhook_id))

    fields = _with_service(read)
    show(fields, lambda: _page(fields))


@webhooks.command(writes=True)
@click.argument("account", type=ACCOUNT_NAME)
@click.argument("url", metavar="URL")
@click.option("--status", "statuses", multiple=True, type=click.Choice(list(map(str, Status))), help=_STATUSES)
def create(account: str, url: str, statuses: tuple[str, ...]) -> None:
    """Create a webhook that sends the changes that ACCOUNT sees to URL, from now on; print its secret once.

    The secret is the only line on stdout: give it to the partner, whose program verifies signatures with it. URL begins
    with https://. `petstore webhooks ping` shows whether its receiver responds.

    $ petstore webhooks create acme https://shop.example/petstore
    $ petstore webhooks create warehouse https://stock.example/hook --status cancelled
    """
    chosen = tuple(Status(status) for status in dict.fromkeys(statuses))
    made = _with_service(lambda service: service.create_for(account, url, operator(), chosen), signs=True)
    _hand_over(made)
    comment(f"Webhook {made.webhook.id} of {account}. Test it: petstore webhooks ping {made.webhook.id}")
    _warn_of_suspension(made.webhook)


@webhooks.command(writes=True, params=[ID])
def pause(webhook_id: str) -> None:
    """Pause the webhook ID: it delivers nothing until it is resumed, and then continues where it was.

    $ petstore webhooks pause wh_3kTMd9QxBv1a
    """
    _edit(webhook_id, WebhookState.PAUSED)


@webhooks.command(writes=True, params=[ID])
@click.option(
    "--replay-from", type=PAST, metavar="TIME", help="Deliver again the changes since then: 2h (ago), 2026-11-20."
)
def resume(webhook_id: str, replay_from: float | None) -> None:
    """Resume the webhook ID, which was paused, or stopped after three days of failures.

    It continues where it was; an active one that fails makes its next attempt at once. With --replay-from, which any
    active one takes as well, each order that has changed since then is sent again, as it is now; what is not delivered
    yet is not skipped.

    $ petstore webhooks resume wh_3kTMd9QxBv1a
    $ petstore webhooks resume wh_3kTMd9QxBv1a --replay-from 24h
    """
    _edit(webhook_id, WebhookState.ACTIVE, None if replay_from is None else Start(since=replay_from))


@webhooks.command(writes=True, params=[ID])
def ping(webhook_id: str) -> None:
    """Send a ping for the webhook ID, also while it is paused or stopped; show the request and the response.

    Waits up to 15 seconds. Exit code 1 unless the status of the response is from 200 to 299.

    $ petstore webhooks ping wh_3kTMd9QxBv1a
    """

    async def send(service: WebhookService) -> "tuple[Webhook, Exchange]":
        webhook = await service.store.webhooks.find(webhook_id)
        return webhook, await service.ping(webhook_id, operator())

    webhook, exchange = _with_service(send, signs=True)
    body, attempt = exchange.body.decode(), exchange.attempt
    sent = {"url": webhook.url, "headers": dict(exchange.headers), "body": body}
    headers = "".join(f"{name}: {value}\n" for name, value in exchange.headers.items())
    received = f"{attempt.excerpt}\n" if attempt.status is None else f"HTTP {attempt.status}\n\n{attempt.excerpt}\n"
    text = f"POST {webhook.url}\n{headers}\n{body}\n\nAfter {attempt.milliseconds:,} ms:\n{received}".rstrip()
    show({**sent, "attempt": _attempt(attempt)}, lambda: text)
    if not attempt.succeeded:
        click.get_current_context().exit(FAILURE)


@webhooks.command(writes=True)
@click.argument("webhook_id", metavar="[ID]", required=False, type=WEBHOOK_ID)
@click.option("--grace", type=GRACE, help="How long the old secret signs as well: seconds, or 1h; 24h if not given.")
@click.option(
    "--all", "every", is_flag=True, help="Take a changed PETSTORE_WEBHOOK_SECRET; the service must be stopped."
)
@click.option("--yes", is_flag=True, help="Do not ask before --all; required if stdin is not a terminal.")
def rotate(webhook_id: str | None, grace: int | None, every: bool, yes: bool) -> None:
    """Replace the secret of the webhook ID, and print the new one once, as the only line on stdout.

    Messages have signatures of both until --grace has passed. With --all, every webhook gets a new secret from a
    changed PETSTORE_WEBHOOK_SECRET, and each is printed once: no old secret signs any more, so receivers refuse
    messages until they have the new ones; the service sends them again.

    $ petstore webhooks rotate wh_3kTMd9QxBv1a --grace 3600
    $ petstore webhooks rotate --all --yes > secrets.txt
    """
    if every == (webhook_id is not None) or (every and grace is not None):
        problem = "Give the ID of a webhook, with or without --grace, or --all."
        raise click.UsageError(problem, click.get_current_context())
    if webhook_id is not None:
        seconds = MAX_GRACE if grace is None else grace
        rotated = _with_service(lambda service: service.rotate(webhook_id, seconds, operator()), signs=True)
        _hand_over(rotated)
        until = format_unix(rotated.webhook.previous_until)
        comment(f"Webhook {webhook_id} of {rotated.webhook.account}. The old secret signs as well until {until}.")
        return
    file = store_file(settings_here())
    if file is not None and is_served(file):
        raise Conflict(_SERVED)
    if not yes:
        confirm(f"{_REPLACE_ALL} the new ones. The service must be stopped on all hosts.")
    found = _with_service(lambda service: service.rotate_all(operator()), signs=True)
    listed = [_revealed(each) for each in found]
    rows = [[each[name] for name in ("id", "account", "url", "secret")] for each in listed]
    show(listed, lambda: table(("ID", "ACCOUNT", "URL", "SECRET"), rows))
    comment(
        f"Replaced the secrets of {plural(len(found), 'webhook')}; give each to its partner, then start the service."
    )


@webhooks.command(writes=True, params=[ID])
@YES
def delete(webhook_id: str, yes: bool) -> None:
    """Delete the webhook ID, with its secret and its position. Asks first: this cannot be reversed.

    $ petstore webhooks delete wh_3kTMd9QxBv1a
    """
    if not yes:
        confirm(f"Delete the webhook {webhook_id}?")
    with_store(lambda store: store.webhooks.delete(webhook_id, operator()))
    show_done({"deleted": webhook_id}, f"Deleted the webhook {webhook_id}.")


def _with_service(work: Callable[[WebhookService], Awaitable[T]], *, signs: bool = False) -> T:
    """Do `work` with the webhooks of the store. Raises SettingsError without the secret, if the work `signs`."""
    settings = settings_here()
    if signs and settings.webhook_secret is None:
        raise SettingsError(_OFF)

    async def run(store: Store) -> T:
        if not signs:
            return await work(WebhookService(store, Addresses(settings.webhook_networks), None))
        return await work(webhook_service(settings, store, time.time))

    return with_store(run, concurrent=True)


def _edit(webhook_id: str, state: WebhookState, start: Start | None = None) -> None:
    async def edit(service: WebhookService) -> tuple[Webhook, dict[str, Any]]:
        webhook = await service.edit(webhook_id, operator(), state=state, start=start)
        return webhook, await _fields(service, webhook)

    webhook, fields = _with_service(edit)
    show(fields, lambda: _page(fields))
    if state is WebhookState.ACTIVE:
        _warn_of_suspension(webhook)


def _hand_over(revealed: Revealed) -> None:
    """Print a new secret."""
    replace = f"petstore webhooks rotate {revealed.webhook.id} --grace 0"
    show_secret(_revealed(revealed), revealed.secret, f"The secret could not be printed; replace it: {replace}")


def _warn_of_suspension(webhook: Webhook) -> None:
    if webhook.suspended:
        warn_of_suspension(webhook.account, "nothing is delivered")


def _revealed(revealed: Revealed) -> dict[str, Any]:
    webhook = revealed.webhook
    return {"id": webhook.id, "account": webhook.account, "url": webhook.url, "secret": revealed.secret}


async def _fields(service: WebhookService, webhook: Webhook) -> dict[str, Any]:
    """A webhook as it is shown."""
    now = time.time()
    return {
        "id": webhook.id,
        "account": webhook.account,
        "url": webhook.url,
        "statuses": webhook.statuses,
        "state": str(webhook.state),
        "accountSuspended": webhook.suspended,
        "createdAt": format_unix(webhook.created_at),
        "lag": await service.lag(webhook, now),
        "failingSince": format_unix(webhook.failing_since),
        "nextAttemptAt": format_unix(webhook.next_at or None) if webhook.delivers and webhook.failures else None,
        "deliveredAt": format_unix(webhook.delivered_at),
        "attempts": [_attempt(attempt) for attempt in webhook.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return attempt._asdict() | {"at": format_unix(attempt.at)}


def _row(fields: dict[str, Any]) -> list[object]:
    last = fields["attempts"][-1] if fields["attempts"] else {"at": None, "status": None}
    status = last["status"] or ("no response" if last["at"] else None)
    known = [fields["id"], fields["account"], fields["url"].partition("?")[0], _state(fields), f"{fields['lag']:,} s"]
    return [*known, fields["failingSince"], last["at"], status]


def _state(fields: dict[str, Any]) -> str:
    """The state for people: other than in JSON, an active webhook may be failing."""
    if fields["state"] != WebhookState.ACTIVE:
        return str(fields["state"])
    return "account suspended" if fields["accountSuspended"] else "failing" if fields["failingSince"] else "active"


def _page(fields: dict[str, Any]) -> str:
    statuses = ", ".join(fields["statuses"]) or "all"
    texts = {"statuses": statuses, "state": _state(fields), "lag": f"{fields['lag']:,} s"}
    shown = {name: value for name, value in (fields | texts).items() if name != "attempts"}
    columns = ("ATTEMPT", "STATUS", "MILLISECONDS", "RESPONSE, OR WHY THERE IS NONE")
    attempts = "No attempts yet."
    if fields["attempts"]:
        attempts = table(columns, [list(each.values()) for each in fields["attempts"]], shrinks=columns[-1:])
    return f"{details(shown.items())}\n\n{attempts}"
