"""Generate the tables of docs/operating.md from the code.

    .venv/bin/python server/tests/support/generated_tables.py

writes them; `test_documentation.py` fails while they differ.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from petstore_server.cli.main import petstore
from petstore_server.settings import SETTINGS

OPERATING = Path(__file__).resolve().parents[3] / "docs" / "operating.md"


def settings_table() -> str:
    """Every setting, its default and its help."""
    rows = [
        (f"`{setting.name}`", f"`{setting.default}`" if setting.default else "", setting.help) for setting in SETTINGS
    ]
    return _table(("Setting", "Default", "Meaning"), rows)


def commands_table() -> str:
    """Every command, its options and the first sentence of its help."""
    rows = [(f"`{usage}`", options, summary) for usage, options, summary in _commands(petstore, "petstore")]
    return _table(("Command", "Options", "What it does"), rows)


TABLES = {"settings": settings_table, "commands": commands_table}


def with_tables(text: str) -> str:
    """The document with each table inserted between `<!-- name -->` and `<!-- /name -->`."""
    for name, table in TABLES.items():
        before, opening, rest = text.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        if not opening or not closing:
            raise ValueError(f"There is no marker for the table of {name}.")
        text = f"{before}{opening}{table()}{closing}{after}"
    return text


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(command, click.Group):
        for name, below in subcommands(command).items():
            yield from _commands(below, f"{path} {name}")
        return
    context = click.Context(command, info_name=path)
    arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    options = [option.opts[0] for option in command.params if isinstance(option, click.Option)]
    shown = ", ".join(f"`{name}`" for name in options if name != "--json")
    yield " ".join([path, *arguments]), shown, command.get_short_help_str(limit=1000)


def subcommands(group: click.Group) -> Mapping[str, click.Command]:
    """The commands of a group by name, of which the root imports each when it is asked for it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        group.get_command(context, name)
    return group.commands


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header)]
    lines.append(["---"] * len(lines[0]))
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


if __name__ == "__main__":
    OPERATING.write_text(with_tables(OPERATING.read_text()))
