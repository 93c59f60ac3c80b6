"""`petstore pets`: the animals that the deprecated operation tells of."""

import click

from petstore_server.cli.commands import Group, WritingCommand
from petstore_server.cli.importing import Kind, import_file
from petstore_server.cli.orders import FORMAT, REJECTS
from petstore_server.domain.pets import PET_FIELDS, pet_from_fields
from petstore_server.formats.csv_rows import integer_cell, text_cell

PETS = Kind(
    "pets",
    dict(zip(PET_FIELDS, (integer_cell, text_cell, text_cell), strict=True)),
    pet_from_fields,
    lambda store: store.pets.import_batch,
    "The pet was refused by the store.",
)


@click.group(cls=Group)
def pets() -> None:
    """Pets, which an order's petId names.

    \b
    Example:
      petstore pets import pets.csv
    """


@pets.command("import", cls=WritingCommand)
@click.argument("file")
@FORMAT
@REJECTS
def import_pets(file: str, file_format: str | None, rejects: str | None) -> None:
    """Take in the pets of FILE (- for stdin): JSON Lines, a JSON array or CSV, with the fields id, name and tag.

    A pet that stands in the store already is replaced. Bad rows are rejected as in `petstore orders import`.

    \b
    Example:
      petstore pets import pets.jsonl --rejects rejects.jsonl
    """
    import_file(PETS, file, file_format, rejects)
