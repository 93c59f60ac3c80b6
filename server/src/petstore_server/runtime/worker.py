"""One of several server processes: it serves on an inherited listening socket and reports to its supervisor.

The other inherited socket is a channel to the supervisor. The worker reports on request, and drains when the other end
of the channel closes: no worker outlives its supervisor.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from typing import Any

import msgspec
import uvloop

from petstore_server.runtime.application import Application
from petstore_server.runtime.composition import lock_for_serving, opened_backend
from petstore_server.runtime.engines import Announce
from petstore_server.runtime.servers import run
from petstore_server.settings import Settings, read_settings
from petstore_server.telemetry.logs import logging_to_stderr

LARGEST_LINE = 1 << 24


class Report(msgspec.Struct):
    """The state of a worker. `number` is that of the request; report 0 is sent unasked, once the worker serves.

    `metrics` are in Prometheus's text format.
    """

    number: int
    ready: bool
    detail: dict[str, Any]
    metrics: str


def serve_inherited(listener: int, channel: int, announce: Announce) -> None:
    """Serve on the inherited sockets with these file descriptors.

    Raises SettingsError, StoreUnusable and ServiceUnavailable if the service cannot start.
    """
    settings = read_settings(os.environ)
    with (
        logging_to_stderr(settings.log_level),
        socket.socket(fileno=listener) as public,
        socket.socket(fileno=channel) as supervisor,
        lock_for_serving(settings),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve(settings, public, supervisor, announce))


async def _serve(settings: Settings, public: socket.socket, channel: socket.socket, announce: Announce) -> None:
    async with opened_backend(settings, time.time, announce) as backend:
        application = Application(settings, backend, time.time, secrets.token_hex)
        requests, reports = await asyncio.open_unix_connection(sock=channel, limit=LARGEST_LINE)

        async def report(number: int) -> None:
            ready, detail = await application.readiness()
            line = msgspec.json.encode(Report(number, ready, detail, application.metrics.exposition().decode()))
            reports.write(line + b"\n")
            await reports.drain()

        async def report_on_request() -> None:
            with contextlib.suppress(ConnectionError):
                while request := await requests.readline():
                    await report(int(request))

        await run(settings, application, public, lambda: report(0), companion=report_on_request)
