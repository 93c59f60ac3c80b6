"""Webhooks: create, show, pause, resume, replay, ping, rotate and delete them."""

from starlette.responses import Response

from petstore_server.console.forms import Form, account_path
from petstore_server.console.pages.accounts import show as show_account
from petstore_server.console.rendering import plain_times
from petstore_server.console.visit import Visit
from petstore_server.domain.errors import InvalidInput, UrlRefused
from petstore_server.domain.orders import Status
from petstore_server.domain.timestamps import DAY, HOUR, format_unix
from petstore_server.domain.webhooks import Webhook, WebhookState, require_not_ended
from petstore_server.operations.webhooks import Start

_GRACES = {"0": (0, "at once"), "1h": (HOUR, "in 1 hour"), "24h": (DAY, "in 24 hours")}  # of the old secret


async def create(visit: Visit) -> Response:
    """Create a webhook and show its secret, once."""
    form = await visit.form()
    statuses = tuple(status for status in Status if status in form.all("status"))
    try:
        made = await visit.sources.webhooks.create_for(visit.path["name"], form["url"], visit.actor, statuses)
    except UrlRefused as error:
        form.errors["url"] = error.message
        return await show_account(visit, webhook_form=form, status=400)
    return visit.page("webhook_secret.html", webhook=made.webhook, secret=made.secret)


async def show(visit: Visit, replay_form: Form | None = None, status: int = 200) -> Response:
    """A webhook; `replay_form` may be given as it was submitted, which one that has ended does not have."""
    webhook = await _webhook(visit)
    if replay_form is not None:
        require_not_ended(webhook)
    has_form = replay_form is None and webhook.state is not WebhookState.ENDED
    kept = await visit.kept(f"{_path(webhook)}/replay") if has_form else None
    return visit.page(
        "webhook.html",
        status,
        webhook=webhook,
        lag=await visit.read(visit.sources.webhooks.lag(webhook, visit.now)),
        changes=await visit.last_changes(f"webhook:{webhook.id}"),
        replay_form=replay_form or kept or Form(),
    )


async def pause(visit: Visit) -> Response:
    return await _set_state(visit, WebhookState.PAUSED, "Paused {}: nothing is delivered until you resume it.")


async def resume(visit: Visit) -> Response:
    return await _set_state(visit, WebhookState.ACTIVE, "Resumed {}: it goes on where it was.")


async def replay(visit: Visit) -> Response:
    """Deliver again what has changed since a time."""
    form = await visit.form()
    since = form.read("since", visit.when)
    if since is None:
        form.errors.setdefault("since", "Give a time, such as 24h (ago) or 2026-11-20.")
        return await show(visit, form, 400)
    webhook_id, start = visit.path["webhook"], Start(since=since.timestamp())
    try:
        webhook = await visit.sources.webhooks.edit(webhook_id, visit.actor, start=start)
    except InvalidInput as error:
        form.errors["since"] = error.message
        return await show(visit, form, 400)
    when = plain_times(str(format_unix(since.timestamp())))
    later = "" if webhook.delivers else " as soon as it delivers again"
    done = f"{webhook.id} sends every order that has changed since {when} again{later}."
    return visit.redirect_with_notice(_path(webhook), done)


async def ping(visit: Visit) -> Response:
    """Send a ping, and show what was sent and what came back."""
    await visit.form()
    webhook = await _webhook(visit)
    exchange = await visit.sources.webhooks.ping(webhook.id, visit.actor)
    return visit.page("webhook_ping.html", webhook=webhook, exchange=exchange, attempt=exchange.attempt)


async def ask(question: str, visit: Visit) -> Response:
    """Ask before a secret is replaced, or a webhook is deleted: `question` is the template."""
    return visit.page(question, webhook=await _webhook(visit), graces=_GRACES)


async def rotate(visit: Visit) -> Response:
    """Replace the secret and show the new one, once."""
    form = await visit.form()
    grace, seen = form["grace"] or "24h", form["seen"] or None
    if grace not in _GRACES:
        raise InvalidInput("Choose when the old secret ends.")
    seconds, _ = _GRACES[grace]
    rotated = await visit.sources.webhooks.rotate(visit.path["webhook"], seconds, visit.actor, seen=seen)
    return visit.page("webhook_secret.html", webhook=rotated.webhook, secret=rotated.secret)


async def delete(visit: Visit) -> Response:
    await visit.form()
    webhook = await _webhook(visit)
    await visit.store.webhooks.delete(webhook.id, visit.actor)
    return visit.redirect_with_notice(account_path(webhook.account), f"Deleted the webhook {webhook.id}.")


async def _set_state(visit: Visit, state: WebhookState, done: str) -> Response:
    form = await visit.form()
    webhook_id, seen = visit.path["webhook"], form["seen"] or None
    webhook = await visit.sources.webhooks.edit(webhook_id, visit.actor, state=state, seen=seen)
    return visit.redirect_with_notice(_path(webhook), done.format(webhook.id))


async def _webhook(visit: Visit) -> Webhook:
    return await visit.require(visit.store.webhooks.find(visit.path["webhook"]))


def _path(webhook: Webhook) -> str:
    return f"/webhooks/{webhook.id}"
