"""`petstore keys`: the API keys of accounts. A key itself is shown once, when it is created."""

import shlex
import sys
import time
from functools import partial
from typing import Any

import click

from petstore_server.cli.arguments import DURATION, FUTURE, TEXT
from petstore_server.cli.commands import ACCOUNT_NAME, KEY_ID, Noun, operator, settings_here, with_store
from petstore_server.cli.output import (
    comment,
    details,
    log_to_stderr,
    plural,
    show,
    show_secret,
    table,
    warn_of_suspension,
)
from petstore_server.domain import keys as transitions
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, Scope
from petstore_server.domain.timestamps import format_hour, format_unix
from petstore_server.domain.transitions import Transition
from petstore_server.domain.webhooks import WebhookState
from petstore_server.operations import accounts as use_cases
from petstore_server.operations.accounts import IssuedKey
from petstore_server.operations.audit import shown_fields
from petstore_server.store import Store

_MAX_LINE_BYTES = 1000  # of stdin that are read
_COLUMNS = ("ID", "ACCOUNT", "ENVIRONMENT", "STATE", "SCOPES", "EXPIRES", "LAST USED (HOUR)", "BANNED UNTIL", "NOTE")
ID = click.Argument(["key_id"], metavar="ID", type=KEY_ID)
_GRACE = "How long the old key remains valid, such as 7d, or 0."
_SCOPES = "What the key allows; repeat for several. Default: "
_SCOPES += f"{', '.join(scope for scope in Scope if scope in DEFAULT_SCOPES)}."

keys = Noun("keys", '$ petstore keys create acme --note "warehouse"')


@keys.command(writes=True)
@click.argument("account", type=ACCOUNT_NAME)
@click.option("--scope", "scopes", multiple=True, type=click.Choice(list(map(str, Scope))), help=_SCOPES)
@click.option("--expires", type=FUTURE, help="When the key expires: 90d, or 2027-01-01. Never if not given.")
@click.option("--note", type=TEXT, default="", help="What the key is for; shown in lists.")
def create(account: str, scopes: tuple[str, ...], expires: float | None, note: str) -> None:
    """Create a key for ACCOUNT and print it once, as the only line on stdout.

    The key is valid in PETSTORE_ENVIRONMENT: pso_live_… for production, pso_test_… for staging.

    $ petstore keys create acme
    $ KEY=$(petstore keys create acme --scope orders:read --expires 90d)
    """
    chosen = frozenset(map(Scope, scopes)) or DEFAULT_SCOPES
    kind = Environment(settings_here().environment)
    issue = partial(use_cases.issue_key, environment=kind, scopes=chosen, expires_at=expires, note=note)
    _hand_over(with_store(lambda store: issue(store, account, actor=operator())))


@keys.command("list")
@click.argument("account", required=False, type=ACCOUNT_NAME)
@click.option("--banned", is_flag=True, help="Only keys that are banned now.")
def list_keys(account: str | None, banned: bool) -> None:
    """List the keys of ACCOUNT, or of all accounts, oldest first.

    $ petstore keys list acme
    $ petstore keys list --banned
    """
    now = time.time()
    listed = [key for key in with_store(lambda store: store.keys.list(account)) if not banned or key.is_banned(now)]
    rows = [_row(key, now) for key in listed]
    show([key_fields(key, now) for key in listed], lambda: table(_COLUMNS, rows, shrinks=["SCOPES", "NOTE"]))


@keys.command("show", params=[ID])
def show_key(key_id: str) -> None:
    """Show everything known about the key ID; the key itself is not stored.

    $ petstore keys show key_3kTMd9QxBv1a
    """
    _show(with_store(lambda store: store.keys.find(key_id)))


@keys.command("find")
def find_key() -> None:
    """Read an API key from stdin, and show its id, account and state.

    The key is never an argument, which other users of this machine could see. On a terminal it is asked for, and not
    shown while it is typed.

    $ petstore keys find
    $ petstore keys find < leaked.txt
    """
    if sys.stdin.isatty():
        secret = click.prompt("API key", hide_input=True, err=True)
    else:
        secret = sys.stdin.buffer.readline(_MAX_LINE_BYTES).decode(errors="replace")
    _show(with_store(lambda store: use_cases.find_key_by_secret(store, secret.strip())))


@keys.command(writes=True, params=[ID])
@click.option("--grace", type=DURATION, default="24h", show_default=True, help=_GRACE)
@click.option("--expires", type=FUTURE, help="Expiry of the new key: 90d, or 2027-01-01. Default: that of the old key.")
def rotate(key_id: str, grace: int, expires: float | None) -> None:
    """Replace the key ID by a new key and print that once, as the only line on stdout.

    The new key has the scopes, the note and any ban of the old one, and uses the same limits. The old key expires
    after --grace, or earlier if it would have.

    $ petstore keys rotate key_3kTMd9QxBv1a --grace 7d
    $ petstore keys rotate key_3kTMd9QxBv1a --expires 90d
    """
    rotate = partial(use_cases.rotate_key, key_id=key_id, grace=grace, expires_at=expires)
    issued = with_store(lambda store: rotate(store, actor=operator()))
    _hand_over(issued)
    _name_webhooks(issued.key.account)
    new = issued.key
    if new.expires_at is not None and expires is None:
        end = f"The new key expires at {format_unix(new.expires_at)}, when the old one would have."
        log_to_stderr(f"{end} For another end: petstore keys rotate {new.id} --expires 90d")


@keys.command(writes=True, params=[ID])
def revoke(key_id: str) -> None:
    """End the key ID now and permanently; servers apply it within a second.

    $ petstore keys revoke key_3kTMd9QxBv1a
    """
    _name_webhooks(_change(key_id, transitions.revoke(time.time())).account)


@keys.command(writes=True, params=[ID])
def unban(key_id: str) -> None:
    """Lift the ban of the key ID; its next ban is as short as a first one. Servers apply it within a second.

    $ petstore keys unban key_3kTMd9QxBv1a
    """
    _change(key_id, transitions.unban(time.time()))


def _change(key_id: str, transition: Transition[ApiKey]) -> ApiKey:
    key = with_store(lambda store: store.keys.change(key_id, transition, operator()))
    _show(key)
    return key


def _name_webhooks(account: str) -> None:
    """Say that the account's webhooks do not end with a key: who had the key may have created one."""

    async def count(store: Store) -> int:
        found = await store.webhooks.of_account((await store.accounts.find(account)).id)
        return sum(webhook.state is WebhookState.ACTIVE for webhook in found)

    if number := with_store(count):
        goes = "which goes on" if number == 1 else "which go on"
        comment(f"{account} has {plural(number, 'webhook')}, {goes}: petstore webhooks list {shlex.quote(account)}")


def key_fields(key: ApiKey, now: float) -> dict[str, Any]:
    """What may be shown of a key at `now` (Unix seconds): everything but the digest."""
    named = {name: getattr(key, name) for name in ("id", "account", "note", "created_at", "rotated_from")}
    named |= {"environment": str(key.environment), "state": str(key.state(now)), "scopes": sorted(key.scopes)}
    fields = named | key.fields() | {"last_used_at": key.last_used_at}
    return dict(shown_fields(fields if key.is_banned(now) else fields | {"ban": None}))


def ban_end(key: dict[str, Any]) -> str | None:
    """The end of the ban in `key_fields`."""
    return key["ban"]["until"] if key["ban"] else None


def _hand_over(issued: IssuedKey) -> None:
    """Print a new key: the only place where a key is written."""
    key = issued.key
    fields = {"id": key.id, "key": issued.secret, **key_fields(key, key.created_at)}
    lost = f"The new key could not be printed; revoke it: petstore keys revoke {key.id}"
    show_secret(fields, issued.secret, lost)
    comment(f"Key {key.id} of {key.account} ({key.environment}). The key itself is not stored and not shown again.")
    if issued.old is not None:
        comment(f"The old key {issued.old.id} expires at {format_unix(issued.old.expires_at)}.")
    if key.account_suspended:
        warn_of_suspension(key.account, "its keys are invalid")


def _show(key: ApiKey) -> None:
    fields = key_fields(key, time.time())
    texts = {"scopes": ", ".join(fields["scopes"]), "lastUsedAt": format_hour(key.last_used_at), "ban": ban_end(fields)}
    show(fields, lambda: details((fields | texts).items()))


def _row(key: ApiKey, now: float) -> list[object]:
    scopes = "default" if key.scopes == DEFAULT_SCOPES else ",".join(sorted(key.scopes))
    known = [key.id, key.account, key.environment, key.state(now), scopes, format_unix(key.expires_at)]
    return [*known, format_hour(key.last_used_at), ban_end(key_fields(key, now)), key.note]
