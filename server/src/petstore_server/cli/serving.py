"""Runs `petstore serve`. Only that command imports this module, because it loads the whole server."""

import asyncio
import logging
import os
import secrets
import shlex
import shutil
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import click
import uvloop

from petstore_server import __version__, commit
from petstore_server.cli.failures import FAILURE, interrupted
from petstore_server.cli.output import abandon_stdout
from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import Environment
from petstore_server.domain.sessions import LINK_LIFETIME
from petstore_server.domain.timestamps import MINUTE
from petstore_server.operations.admin_port import create_link, http_url
from petstore_server.partial_files import TEMPORARY, require_unshared
from petstore_server.runtime.activation import ADMIN, PUBLIC, handed_sockets
from petstore_server.runtime.application import Application
from petstore_server.runtime.backend import opened_backend, require_servable, tracing
from petstore_server.runtime.demo import Demo, fill, show_sample
from petstore_server.runtime.opening import lock_for_serving, migrate_store
from petstore_server.runtime.servers import listening, serve_until_stopped, spread
from petstore_server.runtime.supervisor import WorkerFailed, serve_with_workers
from petstore_server.settings import Settings

_log = logging.getLogger(__name__)


def serve_in_foreground(settings: Settings, given: dict[str, str], *, demo: bool) -> None:
    """Serve until a stop signal. `given` are the settings that differ from the environment."""
    with ExitStack() as stack:
        if demo:  # its accounts are not those that a Redis may count for
            stack.enter_context(interrupted())  # until it serves: its files are removed whenever it ends
            folder = _demo_folder(stack)
            settings = replace(settings, database_url=f"sqlite:///{folder}/demo.db", redis_url=None, workers=1)
            migrate_store(settings, lambda _: None)
        require_servable(settings)
        handed = handed_sockets(os.environ)
        public = stack.enter_context(handed.get(PUBLIC) or listening(settings.host, settings.port, "PETSTORE_PORT"))
        admin = stack.enter_context(
            handed.get(ADMIN) or listening(settings.admin_host, settings.admin_port, "PETSTORE_ADMIN_PORT")
        )
        # Where 0 was given, the ports that were found; those of sockets that were handed over.
        settings = replace(settings, port=public.getsockname()[1], admin_port=admin.getsockname()[1])
        if demo and settings.own_base_url is None:  # so that the examples of its guide work
            own = f"{_address(public)}/v1"
            staging = settings.environment == "staging"
            settings = replace(settings, staging_base_url=own) if staging else replace(settings, base_url=own)
        stack.enter_context(lock_for_serving(settings))
        os.environ.update(given)  # which workers and imports of the console read
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        if settings.workers == 1:
            runner.run(_serve(settings, public, admin, demo=demo))
        else:
            ready = partial(_log_serving, settings, public, admin)
            number = settings.workers
            listeners = [public] * number if PUBLIC in handed else spread(public, number)
            try:
                runner.run(serve_with_workers(settings, listeners, admin, ready))
            except WorkerFailed as error:  # it has said why
                click.get_current_context().exit(max(error.code, FAILURE))
        _log.info("stopped")


def _demo_folder(stack: ExitStack) -> Path:
    """A new directory for temporary files, which the stack removes. Raises InvalidInput."""
    # Python's `gettempdir` would try the directory with a file that a signal may leave there.
    place = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108
    place = place if place.is_dir() else Path("/tmp")  # noqa: S108
    require_unshared(place, TEMPORARY)
    folder = place / f"petstore-demo-{secrets.token_hex(4)}"
    stack.callback(shutil.rmtree, folder, ignore_errors=True)  # first: a signal may come at any time
    folder.mkdir(0o700)
    return folder


async def _serve(settings: Settings, public: socket.socket, admin: socket.socket, *, demo: bool) -> None:
    async with opened_backend(settings, time.time, tracing=tracing(os.environ, settings)) as backend:
        sample = await fill(backend.store, Environment(settings.environment)) if demo else None
        link = None
        if demo and settings.console:
            link, _ = await create_link(backend.store, _address(admin), Actor("operator:demo", time.time()))
        application = Application(settings, backend, time.time, secrets.token_hex)
        if demo and application.console is not None:
            show_sample(application.console.sources, time.time(), _sign_in_command(settings, _address(admin)))

        async def ready() -> None:
            _log_serving(settings, public, admin)
            if sample:
                try:
                    click.echo(_welcome(_address(public), _address(admin), sample, link))
                except OSError:  # the service goes on if nothing reads its stdout
                    abandon_stdout()

        await serve_until_stopped(settings, application, public, ready, admin=admin)


def _log_serving(settings: Settings, public: socket.socket, admin: socket.socket) -> None:
    fields = {"api": _address(public), "admin": _address(admin), "version": __version__, "commit": commit()}
    _log.info("serving", extra={**fields, "environment": settings.environment, "workers": settings.workers})


def _address(bound: socket.socket) -> str:
    return http_url(*bound.getsockname()[:2])


def _sign_in_command(settings: Settings, admin: str) -> str:
    """The command that prints another link, for a shell in the same directory."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "petstore" else "petstore"
    command = [f"PETSTORE_DATABASE_URL={settings.database_url}", program, "console", "--as", "demo", "--url", admin]
    return shlex.join(command)


def _welcome(api: str, admin: str, sample: Demo, link: str | None) -> str:
    console = f"\n  Operator console (link for {LINK_LIFETIME // MINUTE} minutes)   {link}" if link else ""
    text = (files("petstore_server.cli") / "welcome.txt").read_text()
    return text.format(api=api, admin=admin, sample=sample, console=console)
