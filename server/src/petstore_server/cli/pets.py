"""`petstore pets`: import the pets, which an order's petId names."""

from typing import Any

import click

from petstore_server.cli.arguments import FILE_OR_STDIN
from petstore_server.cli.commands import Noun
from petstore_server.cli.import_options import IMPORT_OPTIONS

pets = Noun("pets", "$ petstore pets import pets.csv")


@pets.command("import", writes=True, params=list(IMPORT_OPTIONS))
@click.argument("file", type=FILE_OR_STDIN)
def import_pets(file: str, **options: Any) -> None:
    """Import the pets in FILE (- for stdin): JSON Lines, a JSON array, or CSV, with the fields id, name and tag.

    A pet that is in the store already is replaced. Bad rows are rejected as in `petstore orders import`.

    $ petstore pets import pets.jsonl --rejects rejects.jsonl
    """
    from petstore_server.cli.importing import import_file  # which loads much
    from petstore_server.imports.kinds import PETS

    import_file(PETS, file, **options)
