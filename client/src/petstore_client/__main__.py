"""`python -m petstore_client` is the command `petstore-client`."""

from petstore_client.cli import main

if __name__ == "__main__":
    main()
