"""Run the command `petstore-client` with `python -m petstore_client`."""

from petstore_client.cli import main

if __name__ == "__main__":
    main()
