"""The entry point of `petstore`: how it loads its modules."""

import gc
import signal


def main() -> None:
    """Run the command line; exits."""
    gc.disable()  # until `collect_garbage`: among modules it takes a fifth of a command's time and finds nothing
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:  # Ctrl-C ends the process at once: out of an import there would be a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from petstore_server.cli.main import main as run

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
