"""The command `petstore-client`. It needs the extra `cli`."""

import signal
import sys
from types import FrameType


class Stopped(KeyboardInterrupt):
    """A signal that ends the command as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    """Run the command and exit. Ctrl-C never shows a traceback, not even while an earlier one is being handled."""
    sys.unraisablehook = _report_unraisable
    for number in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _stop)
    try:
        from petstore_client.cli.command import petstore_client
        from petstore_client.cli.console import run

        run(petstore_client, sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("petstore-client: the command needs click: pip install 'click>=8.2'")
    except KeyboardInterrupt as error:
        sys.exit(128 + getattr(error, "number", signal.SIGINT))


def _stop(number: int, _: FrameType | None) -> None:
    raise Stopped(number)


def _report_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Report an exception that nothing can catch, such as one in a finalizer, unless it is a Ctrl-C."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
