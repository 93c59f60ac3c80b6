"""`petstore`: the operator's command line."""

import click

from petstore_server import __version__
from petstore_server.cli.accounts import accounts
from petstore_server.cli.audit import audit
from petstore_server.cli.commands import Root
from petstore_server.cli.completion import completion
from petstore_server.cli.console_command import console
from petstore_server.cli.db import db
from petstore_server.cli.doctor import doctor
from petstore_server.cli.failures import EXIT_CODES_HELP
from petstore_server.cli.keys import keys
from petstore_server.cli.openapi import openapi
from petstore_server.cli.orders import orders
from petstore_server.cli.pets import pets
from petstore_server.cli.serve import serve
from petstore_server.cli.usage import usage


@click.group(
    cls=Root,
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="petstore")
def petstore() -> None:
    """Run the Pet Store Orders service: load and ship orders, issue keys, watch limits.

    Settings are PETSTORE_* environment variables; PETSTORE_DATABASE_URL names the store (sqlite:///petstore.db
    unless set).

    \b
    Examples:
      petstore serve --demo                        a server with sample data
      petstore orders import orders.csv            load orders
      petstore accounts create acme --plan free    a partner
      petstore keys create acme                    and a key for it
      petstore doctor                              what is wrong and what to do
    """


for command in (serve, accounts, keys, usage, orders, pets, audit, openapi, doctor, db, console, completion):
    petstore.add_command(command)


def main() -> None:
    """The entry point; exits."""
    petstore()
