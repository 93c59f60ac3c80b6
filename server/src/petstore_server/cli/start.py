"""The entry point of `petstore`, which looks for no garbage while it loads modules."""

import gc


def main() -> None:
    """Run the command line; exits."""
    gc.disable()  # until `collect_garbage`: among modules it takes a fifth of a command's time and finds nothing
    from petstore_server.cli.main import main as run

    run()
