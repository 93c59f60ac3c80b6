"""`petstore console`: sign-in links of the operator console, and the end of its sessions."""

from contextlib import suppress
from urllib.parse import urlsplit

import click

from petstore_server.cli.arguments import Parsed
from petstore_server.cli.commands import Command
from petstore_server.cli.output import comment, log_to_stderr, plural, show
from petstore_server.cli.stores import operator, settings_here, with_store
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.sessions import LINK_LIFETIME, SESSION_LIFETIME
from petstore_server.domain.timestamps import HOUR, MINUTE, format_unix
from petstore_server.operations.admin_port import admin_url, create_link, host_name, is_allowed_host
from petstore_server.settings import SettingsError

_LIFETIMES = {"minutes": LINK_LIFETIME // MINUTE, "hours": SESSION_LIFETIME // HOUR}


def _read_address(url: str) -> str:
    """The address of the admin port as a browser reaches it: a scheme, a host, and a port if it has one."""
    with suppress(ValueError):  # brackets that do not match
        scheme, host, *more = urlsplit(url.rstrip("/"))
        if scheme in ("http", "https") and host_name(host) is not None and not any(more):
            return url
    raise InvalidInput("must be an http:// or https:// address without a path, such as https://ops.example.com.")


@click.command(cls=Command, writes=True, values=_LIFETIMES)
@click.option(
    "--url",
    type=Parsed("url", _read_address),
    metavar="URL",
    help="Where the admin port is reached, such as https://ops.example.com; default: http://ADMIN_HOST:ADMIN_PORT.",
)
@click.option("--end-sessions", "end", is_flag=True, help="End all sessions, and make unused links invalid.")
def console(url: str | None, end: bool) -> None:
    """Print a link that signs in to the operator console.

    The link works once and for {minutes} minutes. What you change in the console is audited under your name, or the
    name that --as gives. The session ends after {hours} hours without a request.

    $ petstore console --as ada
    $ petstore console --end-sessions
    """
    if end:
        count = with_store(lambda store: store.sessions.end_all(operator()), writes=True)
        show({"ended": count}, lambda: f"Ended {plural(count, 'session')}; unused links are invalid now.")
        return
    settings = settings_here()
    if not settings.console:
        raise SettingsError("PETSTORE_CONSOLE is off: the server has no console. Set it to on and restart the server.")
    if url is None and settings.admin_port == 0:
        raise SettingsError("PETSTORE_ADMIN_PORT is 0, so the port is not known here; give the address with --url.")
    address = url or admin_url(settings)
    host = urlsplit(address).netloc
    if not is_allowed_host(host, settings):
        log_to_stderr(
            f"{host_name(host)} is not in PETSTORE_CONSOLE_HOSTS, so the server will refuse the link with 421. "
            "Add it, and restart the server."
        )
    link, expires_at = with_store(lambda store: create_link(store, address, operator()))
    show({"url": link, "expiresAt": format_unix(expires_at)}, lambda: link)
    comment(f"The link works once and for {LINK_LIFETIME // MINUTE} minutes.")
