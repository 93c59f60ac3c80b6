"""`petstore serve`: the service in the foreground, until SIGTERM, SIGHUP or Ctrl-C."""

import gc
import os

import click

from petstore_server.cli.commands import Documented
from petstore_server.settings import read_settings


@click.command(cls=Documented)
@click.option("--host", metavar="H", help="Address on which the API listens (PETSTORE_HOST, 127.0.0.1).")
@click.option("--port", metavar="P", help="Port of the API (PETSTORE_PORT, 8080); 0 takes a free one.")
@click.option(
    "--admin-port", metavar="P", help="Port of /livez, /readyz, /metrics, /console (PETSTORE_ADMIN_PORT, 8081)."
)
@click.option("--workers", metavar="N", help="Server processes (PETSTORE_WORKERS, 1).")
@click.option(
    "--demo", is_flag=True, help="Serve a throwaway store with sample data, and print a key and a link to the console."
)
def serve(demo: bool, **options: str | None) -> None:
    """Serve the API and the admin port.

    A missing store is created, an older one migrated. Settings come from PETSTORE_* variables; the options override
    them. SIGTERM, SIGHUP or Ctrl-C drains: /readyz turns 503, requests in progress are finished, counts are saved.

    $ PETSTORE_DATABASE_URL=sqlite:////var/lib/petstore/orders.db petstore serve --port 8000
    """
    gc.disable()  # loaded modules stay: collecting garbage while they load takes time and finds nothing
    from petstore_server.cli.serving import serve_in_foreground  # slow to import, and no other command needs it

    gc.enable()
    given = {f"PETSTORE_{name.upper()}": value for name, value in options.items() if value is not None}
    settings = read_settings({**os.environ, **given})
    serve_in_foreground(settings, given, demo=demo)
