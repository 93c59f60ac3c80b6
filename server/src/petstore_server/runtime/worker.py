"""One of several server processes: it serves on an inherited listening socket and reports to its supervisor.

The other inherited socket is a channel to the supervisor. The worker reports on request, and drains when the other end
of the channel closes.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from typing import Any

import msgspec

from petstore_server.runtime.application import Application, run
from petstore_server.runtime.backend import Announce, lock_for_serving, open_backend
from petstore_server.runtime.event_loops import loop_factory
from petstore_server.settings import Settings, read_settings
from petstore_server.telemetry.aggregation import Figures, figures_of
from petstore_server.telemetry.logs import configure_logging

LARGEST_LINE = 1 << 24


class Report(msgspec.Struct):
    """How a worker is. `number` is that of the question; the first report, 0, comes unasked: it serves from now on."""

    number: int
    ready: bool
    detail: dict[str, Any]
    figures: Figures


def serve_inherited(listener: int, channel: int, announce: Announce) -> None:
    """Serve on the inherited sockets with these file descriptors.

    Raises SettingsError, StoreUnusable and ServiceUnavailable where the service cannot start.
    """
    settings = read_settings(os.environ)
    configure_logging(settings.log_level)
    with (
        socket.socket(fileno=listener) as public,
        socket.socket(fileno=channel) as asking,
        lock_for_serving(settings),
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(_serve(settings, public, asking, announce))


async def _serve(settings: Settings, public: socket.socket, channel: socket.socket, announce: Announce) -> None:
    backend = await open_backend(settings, time.time, announce)
    try:
        application = Application(settings, backend, time.time, secrets.token_hex)
        questions, responses = await asyncio.open_unix_connection(sock=channel, limit=LARGEST_LINE)

        async def report(number: int) -> None:
            ready, detail = await application.readiness()
            line = msgspec.json.encode(Report(number, ready, detail, figures_of(application.metrics.registry)))
            responses.write(line + b"\n")
            await responses.drain()

        async def response() -> None:
            with contextlib.suppress(ConnectionError):
                while question := await questions.readline():
                    await report(int(question))

        await run(settings, application, public, lambda: report(0), beside=response)
    finally:
        await backend.close()
