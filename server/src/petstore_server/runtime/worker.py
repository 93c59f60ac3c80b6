"""A worker: a server process that inherits its listening socket, and a channel to its supervisor (D1).

It reports on request, and drains when the other end of the channel closes: no worker outlives its supervisor.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import time

import msgspec
import uvloop

from petstore_server.api.admin import Readiness
from petstore_server.runtime.application import Application
from petstore_server.runtime.backend import opened_backend, tracing
from petstore_server.runtime.opening import lock_for_serving
from petstore_server.runtime.servers import serve_until_stopped
from petstore_server.settings import Settings
from petstore_server.telemetry.metrics import exposition


class WorkerReport(msgspec.Struct):
    """The state of a worker; `metrics` are in Prometheus's text format."""

    readiness: Readiness
    metrics: str


def serve_inherited(settings: Settings, listener: int, channel: int) -> None:
    """Serve as a worker on the inherited sockets. Raises SettingsError, StoreUnusable, ServiceUnavailable."""
    with (
        socket.socket(fileno=listener) as public,
        socket.socket(fileno=channel) as supervisor,
        lock_for_serving(settings),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve(settings, public, supervisor))


async def _serve(settings: Settings, public: socket.socket, channel: socket.socket) -> None:
    """Serve; report once when ready, and then whenever the supervisor sends a line."""
    async with opened_backend(settings, time.time, tracing=tracing(os.environ, settings)) as backend:
        application = Application(settings, backend, time.time, secrets.token_hex)
        requests, reports = await asyncio.open_unix_connection(sock=channel)

        async def report() -> None:
            readiness, metrics = await asyncio.gather(application.readiness(), application.collect())
            reports.write(msgspec.json.encode(WorkerReport(readiness, exposition(metrics).decode())) + b"\n")
            await reports.drain()

        async def report_on_request() -> None:
            with contextlib.suppress(ConnectionError):
                while await requests.readline():
                    await report()

        await serve_until_stopped(settings, application, public, report, companion=report_on_request)
