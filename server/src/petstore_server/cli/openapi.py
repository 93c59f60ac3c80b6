"""`petstore openapi`: the contract of the interface."""

import click

from petstore_server.cli.commands import Command
from petstore_server.cli.output import wants_json, write, write_json
from petstore_server.cli.stores import settings_here


@click.command(cls=Command)
@click.option("--api", type=click.Choice(["v1", "v2"]), default="v1", show_default=True, help="The version of the API.")
def openapi(api: str) -> None:
    """Print the OpenAPI contract as this service serves it: YAML, or JSON with --json.

    $ petstore openapi > openapi.yaml
    $ petstore openapi --api v2 --json > openapi-v2.json
    """
    from petstore_server.api.contracts import contract_yaml, load_contract

    settings = settings_here()
    if wants_json():
        write_json(load_contract(settings, api))
    else:
        write(contract_yaml(settings, api).decode())
