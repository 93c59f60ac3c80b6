"""The command `petstore-client`. It needs the extra `cli`."""

import sys


def main() -> None:
    """Run the command and exit."""
    try:
        from petstore_client.cli.command import petstore_client
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit("petstore-client: the command needs click and rich: pip install 'petstore-client[cli]'")
    petstore_client()
