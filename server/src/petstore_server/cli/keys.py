"""`petstore keys`: the API keys of accounts. A key itself is shown once, when it is made."""

import secrets
import time
from datetime import datetime
from typing import Any

import click

from petstore_server.cli.arguments import Duration, When
from petstore_server.cli.console import Group, details, log_to_stderr, show, table, wants_json, write, write_json
from petstore_server.cli.stores import now, operator, settings_here, with_store
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, Scope, digest, new_key, new_key_id
from petstore_server.domain.timestamps import format_unix


@click.group(cls=Group)
def keys() -> None:
    """API keys: create, list, rotate, revoke, lift bans.

    \b
    Example:
      petstore keys create acme --note "warehouse"
    """


@keys.command()
@click.argument("account")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([str(scope) for scope in Scope]),
    help="What the key may do; repeat for several. Default: orders:read, orders:cancel, pets:read.",
)
@click.option("--expires", type=When(), metavar="WHEN", help="When the key ends: 90d, or 2027-01-01T00:00:00Z.")
@click.option("--note", default="", metavar="TEXT", help="What the key is for; shown in lists.")
def create(account: str, scopes: tuple[str, ...], expires: datetime | None, note: str) -> None:
    """Create a key of ACCOUNT and print it, this once, as the only line of stdout.

    The key is one of PETSTORE_ENVIRONMENT: pso_live_… in production, pso_test_… in staging.

    \b
    Examples:
      petstore keys create acme
      KEY=$(petstore keys create acme --scope orders:read --expires 90d)
    """
    if expires is not None and expires <= now():
        raise InvalidInput(f"--expires {format_unix(expires.timestamp())} is in the past; give a moment to come.")
    environment = Environment(settings_here().environment)
    secret = new_key(environment, secrets.randbelow)
    actor = operator()
    key = ApiKey(
        id=new_key_id(secrets.randbelow),
        account=account,
        digest=digest(secret),
        environment=environment,
        scopes=frozenset(map(Scope, scopes)) or DEFAULT_SCOPES,
        note=note,
        created_at=actor.at,
        expires_at=expires.timestamp() if expires else None,
    )
    _hand_over(with_store(lambda store: store.keys.create(key, actor), writes=True), secret)


@keys.command("list")
@click.argument("account", required=False)
@click.option("--banned", is_flag=True, help="Only the keys that are banned now.")
def list_keys(account: str | None, banned: bool) -> None:
    """List the keys of ACCOUNT, or of all accounts, oldest first.

    \b
    Examples:
      petstore keys list acme
      petstore keys list --banned
    """
    found = with_store(lambda store: store.keys.list(account))
    timestamp = time.time()
    listed = [
        key_fields(key, timestamp) for key in found if not banned or (key.ban is not None and key.ban.holds(timestamp))
    ]
    header = ("ID", "ACCOUNT", "ENVIRONMENT", "STATE", "SCOPES", "EXPIRES", "BANNED UNTIL", "NOTE")
    show(listed, lambda: table(header, [_row(key) for key in listed]))


@keys.command("show")
@click.argument("key_id", metavar="ID")
def show_key(key_id: str) -> None:
    """Show all that is known of the key ID; never the key itself, which is not stored.

    \b
    Example:
      petstore keys show key_3kTMd9QxBv1a
    """
    _show(with_store(lambda store: store.keys.find(key_id)))


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option(
    "--grace", type=Duration(), default="24h", show_default=True, help="How long the old key stays valid; or 0."
)
def rotate(key_id: str, grace: int) -> None:
    """Replace the key ID by a new one and print that, this once, as the only line of stdout.

    The new key has the scopes, the end and the ban of the old one, and counts against the same limits.

    \b
    Example:
      petstore keys rotate key_3kTMd9QxBv1a --grace 7d
    """
    actor = operator()

    async def replace(store: Any) -> tuple[ApiKey, str]:
        old: ApiKey = await store.keys.find(key_id)
        secret = new_key(old.environment, secrets.randbelow)
        new = ApiKey(
            new_key_id(secrets.randbelow), old.account, digest(secret), old.environment, old.scopes, old.note, actor.at
        )
        return await store.keys.rotate(key_id, new, actor.at + grace, actor), secret

    key, secret = with_store(replace, writes=True)
    log_to_stderr(f"The old key {key_id} ends at {format_unix(actor.at + grace)}, if not sooner.")
    _hand_over(key, secret)


@keys.command()
@click.argument("key_id", metavar="ID")
def revoke(key_id: str) -> None:
    """End the key ID now, for good; servers follow within a second.

    \b
    Example:
      petstore keys revoke key_3kTMd9QxBv1a
    """
    _show(with_store(lambda store: store.keys.revoke(key_id, operator()), writes=True))


@keys.command()
@click.argument("key_id", metavar="ID")
def unban(key_id: str) -> None:
    """Lift the ban of the key ID and forget it; servers follow within a second.

    \b
    Example:
      petstore keys unban key_3kTMd9QxBv1a
    """
    _show(with_store(lambda store: store.keys.unban(key_id, operator()), writes=True))


def key_fields(key: ApiKey, timestamp: float) -> dict[str, Any]:
    """What may be shown of a key at `moment` (Unix seconds): everything but the digest."""
    ban = key.ban if key.ban is not None and key.ban.holds(timestamp) else None
    return {
        "id": key.id,
        "account": key.account,
        "environment": str(key.environment),
        "state": str(key.state(timestamp)),
        "scopes": sorted(key.scopes),
        "note": key.note,
        "createdAt": format_unix(key.created_at),
        "expiresAt": format_unix(key.expires_at),
        "revokedAt": format_unix(key.revoked_at),
        "rotatedFrom": key.rotated_from,
        "ban": ban and {"since": format_unix(ban.began), "until": format_unix(ban.until), "level": ban.level},
    }


def _hand_over(key: ApiKey, secret: str) -> None:
    """The one moment at which a key is written anywhere."""
    if wants_json():
        write_json({"id": key.id, "key": secret, **key_fields(key, key.created_at)})
        return
    log_to_stderr(
        f"Key {key.id} of {key.account} ({key.environment}). It is shown this once and not stored: keep it safe."
    )
    write(secret + "\n")


def _show(key: ApiKey) -> None:
    fields = key_fields(key, time.time())
    pairs = {**fields, "scopes": ", ".join(fields["scopes"]), "ban": fields["ban"] and fields["ban"]["until"]}
    labels = {"createdAt": "created", "expiresAt": "expires", "revokedAt": "revoked", "rotatedFrom": "rotated from"}
    labels["ban"] = "banned until"
    show(fields, lambda: details([(labels.get(name, name), value or None) for name, value in pairs.items()]))


def _row(key: dict[str, Any]) -> list[object]:
    scopes = "default" if DEFAULT_SCOPES == set(key["scopes"]) else ",".join(key["scopes"])
    ban = key["ban"]["until"] if key["ban"] else None
    return [
        key["id"],
        key["account"],
        key["environment"],
        key["state"],
        scopes,
        key["expiresAt"],
        ban,
        key["note"] or None,
    ]
