"""`petstore`: the operator's command line."""

import sys
from typing import Any

import click

from petstore_server import __version__
from petstore_server.cli.commands import SUMMARIES, Root
from petstore_server.cli.failures import EXIT_CODES_HELP, INTERRUPTED


@click.group(
    cls=Root,
    commands={name: click.Command(name, short_help=summary) for name, summary in SUMMARIES.items()},
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="petstore")
def petstore() -> None:
    """Run the Pet Store Orders service: load and ship orders, issue keys, watch limits.

    Settings are PETSTORE_* environment variables; PETSTORE_DATABASE_URL names the store (sqlite:///petstore.db
    unless set).

    $ petstore serve --demo                        a server with sample data
    $ petstore orders import orders.csv            load orders
    $ petstore accounts create acme --plan free    a partner
    $ petstore keys create acme                    and a key for it
    $ petstore doctor                              what is wrong and what to do
    """


def main() -> None:
    """The entry point; exits. Ctrl-C never shows a traceback, also not while the effect of another is reported."""
    sys.unraisablehook = _report_unraisable
    try:
        petstore()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _report_unraisable(unraisable: Any) -> None:
    """Report an exception that nothing can catch, such as one in a finalizer, unless it is a Ctrl-C."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
