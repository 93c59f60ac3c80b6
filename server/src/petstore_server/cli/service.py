"""The commands about the service itself: `petstore serve`, `openapi`, `doctor` and `console`."""

import os
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import click

from petstore_server.cli.arguments import TEXT, Parsed
from petstore_server.cli.commands import Command, operator, settings_here, with_store
from petstore_server.cli.failures import FAILURE, logged
from petstore_server.cli.main import Documented, collect_garbage
from petstore_server.cli.output import (
    comment,
    log_to_stderr,
    plural,
    printable,
    show,
    table,
    wants_json,
    wrapped,
    write,
    write_json,
)
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.roles import Role
from petstore_server.domain.sessions import LINK_LIFETIME, SESSION_LIFETIME, Session
from petstore_server.domain.timestamps import HOUR, MINUTE, format_unix
from petstore_server.operations.admin_port import admin_url, create_link, host_name, is_allowed_host
from petstore_server.operations.health import Action, CheckResult
from petstore_server.settings import SettingsError, read_settings
from petstore_server.store import Store

_LABELS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}

_COMMANDS: Mapping[Action, str] = {
    "create account": "petstore accounts create NAME --plan free",
    "create key": "petstore keys create ACCOUNT",
    "rotate key": "petstore keys rotate {} --expires 90d",
    "lift ban": "petstore keys unban {}",
    "restrict orders": "petstore accounts edit {} --orders own",
    "back up": "petstore db backup FILE --keep 14",
    "record backup": "petstore db backup NAME --made",
    "restore": "petstore db restore FILE",
    "check store": "petstore db check reads all of it.",
    "migrate": "petstore db migrate",
    "list webhooks": "petstore webhooks list",
    "ping webhook": "petstore webhooks ping ID",
    "resume webhook": "petstore webhooks resume ID",
    "replace secrets": "petstore webhooks rotate --all",
}
_URL = "Where the admin port is reached, such as https://ops.example.com; default: http://ADMIN_HOST:ADMIN_PORT."
_LIFETIMES = {"minutes": LINK_LIFETIME // MINUTE, "hours": SESSION_LIFETIME // HOUR}


@click.command(cls=Documented)
@click.option("--host", metavar="H", help="Address on which the API listens (PETSTORE_HOST, 127.0.0.1).")
@click.option("--port", metavar="P", help="Port of the API (PETSTORE_PORT, 8080); 0 takes a free one.")
@click.option("--admin-port", metavar="P", help="Port of health, metrics and console (PETSTORE_ADMIN_PORT, 8081).")
@click.option("--workers", metavar="N", help="Server processes (PETSTORE_WORKERS, 1).")
@click.option("--demo", is_flag=True, help="Serve sample data that is gone at the end; print keys and a console link.")
def serve(demo: bool, **options: str | None) -> None:
    """Serve the API and the admin port.

    An older store is migrated; `petstore db migrate` creates a missing one. Settings come from PETSTORE_* variables;
    the options override them. SIGTERM, Ctrl-C or closing its terminal drains: /readyz turns 503, requests in progress
    are finished, counts are saved.

    $ PETSTORE_DATABASE_URL=sqlite:////var/lib/petstore/orders.db petstore serve --port 8000
    """
    given = {f"PETSTORE_{name.upper()}": value for name, value in options.items() if value is not None}
    settings = read_settings(os.environ, given)
    with logged(settings.log_level):
        from petstore_server.cli.serving import serve_in_foreground

        collect_garbage()
        serve_in_foreground(settings, given, demo=demo)


@click.command(cls=Command)
@click.option("--api", type=click.Choice(["v1", "v2"]), default="v1", show_default=True, help="The version of the API.")
def openapi(api: str) -> None:
    """Print the OpenAPI contract as this service serves it: YAML, or JSON with --json.

    $ petstore openapi > openapi.yaml
    $ petstore openapi --api v2 --json > openapi-v2.json
    """
    from petstore_server.api.contracts import contract_yaml, load_contract  # slow to import, as the modules below

    settings = settings_here()
    show(load_contract(settings, api), lambda: contract_yaml(settings, api).decode().rstrip("\n"))


@click.command(cls=Command)
def doctor() -> None:
    """Check settings, store, disk, ports, clock, keys, webhooks, Redis and PostgreSQL, and say what to do.

    Exit code 1 if a check fails. Changes no data, and never shows a password or a key.

    $ petstore doctor
    $ petstore doctor --json
    """
    import asyncio

    from petstore_server.runtime.health import examine

    try:
        found = asyncio.run(examine(settings_here(), time.time))
    except SettingsError as error:
        found = [CheckResult("settings", "fail", str(error), "Correct the variable; the other checks need it.")]
    listed = []
    for result in found:
        command = _COMMANDS[result.action].format(shlex.quote(result.subject)) if result.action else ""
        remedy = f"{result.remedy} {command}".strip()
        listed.append({"check": result.check, "level": result.level, "message": result.message, "remedy": remedy})
        if not wants_json():
            _print(result, remedy)
    if wants_json():
        write_json(listed)
    if any(result.level == "fail" for result in found):
        click.get_current_context().exit(FAILURE)


def _print(result: CheckResult, remedy: str) -> None:
    """Write a result, on a terminal with its label in colour unless NO_COLOR is set."""
    label, colour = _LABELS[result.level]
    text = wrapped(f"{label}  {result.check}: {printable(result.message)}", 6)
    click.secho(label, fg=colour, nl=False, color=False if os.environ.get("NO_COLOR") else None)
    write(text.removeprefix(label) + "\n" + (wrapped(f"      → {printable(remedy)}", 8) + "\n" if remedy else ""))


def _read_address(url: str) -> str:
    """The address of the admin port as a browser reaches it: a scheme, a host, and a port if it has one."""
    with suppress(ValueError):  # brackets that do not match
        scheme, host, *more = urlsplit(url.rstrip("/"))
        named = scheme in ("http", "https") and host_name(host) is not None
        if named and not any(more) and [url] == url.split():  # urlsplit() drops a line break
            return url
    raise InvalidInput("must be an http:// or https:// address without a path, such as https://ops.example.com.")


@click.command(cls=Command, writes=True, values=_LIFETIMES)
@click.option("--url", type=Parsed("url", _read_address), metavar="URL", help=_URL)
@click.option("--role", type=click.Choice(list(map(str, Role))), help="What the link allows; admin unless given.")
@click.option("--sessions", "listed", is_flag=True, help="List the sessions instead.")
@click.option(
    "--end-session",
    "ended",
    type=TEXT,
    metavar="ID",
    help="End this session of --sessions, and its operator's unused links.",
)
@click.option("--end-sessions", "end_all", is_flag=True, help="End all sessions, and make unused links invalid.")
def console(url: str | None, role: str | None, listed: bool, ended: str | None, end_all: bool) -> None:
    """Print a link that signs in to the operator console, or list and end its sessions.

    The link works once and for {minutes} minutes. What you change in the console is audited under your name, or the
    name that --as gives. The session ends after {hours} hours without a request. A viewer sees everything but new keys
    and files of rejected rows; an operator also changes and imports orders, lifts bans, and pauses, resumes, replays
    and pings webhooks; an admin does the rest.

    $ petstore console --as ada
    $ petstore console --as bob --role viewer
    $ petstore console --sessions
    $ petstore console --end-session session_3f9a1c20b7de
    $ petstore console --end-sessions
    """
    if sum((listed, ended is not None, end_all, url is not None or role is not None)) > 1:
        problem = "Give one of --sessions, --end-session and --end-sessions, or the options of a link: --url, --role."
        raise click.UsageError(problem, click.get_current_context())
    if listed:
        _list_sessions()
    elif ended is not None:
        _end_session(ended)
    elif end_all:
        count = with_store(lambda store: store.sessions.end_all(operator()))
        show({"ended": count}, lambda: f"Sessions ended: {count}. Unused links are invalid now.")
    else:
        _print_link(url, Role(role or Role.ADMIN))


def _list_sessions() -> None:
    found = [_session_fields(session) for session in with_store(lambda store: store.sessions.list(time.time()))]
    titles = ("SESSION", "NAME", "ROLE", "SIGNED IN", "LAST REQUEST", "ENDS")
    show(found, lambda: table(titles, [list(each.values()) for each in found]) if found else "There are no sessions.")


def _end_session(identifier: str) -> None:
    async def end(store: Store) -> tuple[Session, int]:
        session = await store.sessions.end_one(identifier, operator())
        return session, sum(each.actor == session.actor for each in await store.sessions.list(time.time()))

    session, left = with_store(end)
    name = printable(session.operator)
    show(_session_fields(session), lambda: f"Ended the session of {name}. Unused links of {name} are invalid now.")
    if left:
        comment(f"{name} has {plural(left, 'more session')}: `petstore console --sessions`")


def _session_fields(session: Session) -> dict[str, str | None]:
    times = {"beganAt": session.began_at, "usedAt": session.used_at, "expiresAt": session.expires_at}
    shown = {name: format_unix(at) for name, at in times.items()}
    return {"id": session.id, "name": session.operator, "role": str(session.role), **shown}


def _print_link(url: str | None, role: Role) -> None:
    settings = settings_here()
    if not settings.console:
        raise SettingsError("PETSTORE_CONSOLE is off: the server has no console. Set it to on and restart the server.")
    if url is None and settings.admin_port == 0:
        raise SettingsError("PETSTORE_ADMIN_PORT is 0, so the port is not known here; give the address with --url.")
    address = url or admin_url(settings)
    host = urlsplit(address).netloc
    if not is_allowed_host(host, settings):
        problem = f"{host_name(host)} is not in PETSTORE_CONSOLE_HOSTS, so the server will refuse the link with 421."
        log_to_stderr(f"{problem} Add it, and restart the server.")
    link, expires_at = with_store(lambda store: create_link(store, address, operator(), role))
    show({"url": link, "role": str(role), "expiresAt": format_unix(expires_at)}, lambda: link)
    comment(f"The link works once and for {LINK_LIFETIME // MINUTE} minutes.")
