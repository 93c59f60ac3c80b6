"""The command `petstore-client`. It needs the extra `cli`."""

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def main() -> None:
    """Run the command and exit. Ctrl-C never shows a traceback, also not while the effect of another is reported."""
    sys.unraisablehook = _report_unraisable
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _run() -> None:
    try:
        from petstore_client.cli.command import petstore_client
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit("petstore-client: the command needs click and rich: pip install 'petstore-client[cli]'")
    petstore_client()


def _report_unraisable(unraisable: "UnraisableHookArgs") -> None:
    """Report an exception that nothing can catch, such as one in a finalizer, unless it is a Ctrl-C."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
