"""The entry point of a worker process, started by the supervisor of `petstore serve --workers N`; not a command."""

import gc
import os
import sys

import click

from petstore_server.cli.failures import logged
from petstore_server.cli.main import Root
from petstore_server.settings import read_settings


@click.group(cls=Root, invoke_without_command=True)
@click.argument("listener", type=int)
@click.argument("channel", type=int)
def worker(listener: int, channel: int) -> None:
    """Serve on the inherited sockets with these file descriptors."""
    settings = read_settings(os.environ)
    with logged(settings.log_level):
        gc.disable()  # see `start.main`
        from petstore_server.runtime.worker import serve_inherited

        gc.enable()
        serve_inherited(settings, listener, channel)


if __name__ == "__main__":
    worker(sys.argv[1:])
