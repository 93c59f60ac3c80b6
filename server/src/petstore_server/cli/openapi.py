"""`petstore openapi`: the contract of the interface."""

import click

from petstore_server.cli.commands import Command
from petstore_server.cli.output import wants_json, write, write_json
from petstore_server.cli.stores import settings_here


@click.command(cls=Command)
def openapi() -> None:
    """Print the OpenAPI contract as this service serves it: YAML, or JSON with --json.

    \b
    Examples:
      petstore openapi > openapi.yaml
      petstore openapi --json > openapi.json
    """
    from petstore_server.http.contract import contract_yaml, load_contract

    settings = settings_here()
    if wants_json():
        write_json(load_contract(settings))
    else:
        write(contract_yaml(settings))
