"""One of several server processes, started and watched by `petstore serve --workers N`; no command of its own.

It answers on the listening socket that it inherits. Beside that it holds one end of a channel to the process that
started it: it reports through it when asked, and drains when the other end is gone.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
import time
from typing import Any

import click
import msgspec

from petstore_server.asgi import Application, run
from petstore_server.backends import lock_for_serving, open_backend
from petstore_server.cli.console import Root, chatter
from petstore_server.cli.loops import loop_factory
from petstore_server.http.figures import Figures, figures_of
from petstore_server.http.observe import configure_logging
from petstore_server.settings import Settings, read_settings

LARGEST_LINE = 1 << 24


class Report(msgspec.Struct):
    """How a worker is. `number` is that of the question; the first report, 0, comes unasked: it serves from now on."""

    number: int
    ready: bool
    detail: dict[str, Any]
    figures: Figures


@click.group(cls=Root, invoke_without_command=True)
@click.argument("listener", type=int)
@click.argument("channel", type=int)
def worker(listener: int, channel: int) -> None:
    """Serve on the inherited sockets of these numbers."""
    settings = read_settings(os.environ)
    configure_logging(settings.log_level)
    with (
        socket.socket(fileno=listener) as public,
        socket.socket(fileno=channel) as asking,
        lock_for_serving(settings),
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(_serve(settings, public, asking))


async def _serve(settings: Settings, public: socket.socket, channel: socket.socket) -> None:
    backend = await open_backend(settings, time.time, chatter)
    try:
        application = Application(settings, backend, time.time, secrets.token_hex)
        questions, answers = await asyncio.open_unix_connection(sock=channel, limit=LARGEST_LINE)

        async def report(number: int) -> None:
            ready, detail = await application.readiness()
            line = msgspec.json.encode(Report(number, ready, detail, figures_of(application.metrics.registry)))
            answers.write(line + b"\n")
            await answers.drain()

        async def answer() -> None:
            with contextlib.suppress(ConnectionError):
                while question := await questions.readline():
                    await report(int(question))

        await run(settings, application, public, lambda: report(0), beside=answer)
    finally:
        await backend.close()


if __name__ == "__main__":
    worker(sys.argv[1:])
