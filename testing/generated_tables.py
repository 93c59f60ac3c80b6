"""Generate the tables of the documents from the code.

    .venv/bin/python -m testing.generated_tables

writes them; `test_documents.py` fails while they differ.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from petstore_server.cli.failures import EXIT_CODES
from petstore_server.cli.main import petstore
from petstore_server.settings import SETTINGS
from testing.documents import ROOT, SOURCE

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference.md"


def settings_table() -> str:
    """Every setting, its default, its help and its range."""
    rows = [
        (
            f"`{setting.name}`",
            f"`{setting.default}`" if setting.default else "",
            f"{setting.help} {_of_file(setting.names)}{setting.read.__doc__ or ''}".rstrip(),
        )
        for setting in SETTINGS
    ]
    return _table(("Setting", "Default", "Meaning"), rows)


def _of_file(names: Sequence[str]) -> str:
    return f"Or in a file: `{names[1]}`. " if names[1:] else ""


def commands_table() -> str:
    """Every command or group of commands, with the commands of the group and the first sentence of its help."""
    rows = []
    for name, command in subcommands(petstore).items():
        members = subcommands(command).items() if isinstance(command, click.Group) else ()
        shown = ", ".join(f"`{' '.join([member, *_arguments(each)])}`" for member, each in members)
        words = " ".join(["petstore", name, *_arguments(command)])
        rows.append((f"`{words}`", shown, command.get_short_help_str(limit=1000)))
    return _table(("Command", "Its commands", "What it is for"), rows)


def exit_codes_table() -> str:
    """Every exit code of the commands."""
    return _table(("Exit code", "Meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def packages_table() -> str:
    """Every package of the server, with the first line of its docstring."""
    packages = [file.parent for file in sorted(SOURCE.rglob("__init__.py")) if file.parent != SOURCE]
    return _table(
        ("Package", "What it is for"),
        [(f"`{package.relative_to(SOURCE)}/`", summary(package / "__init__.py")) for package in packages],
    )


def decisions_table() -> str:
    """Every decision, with its title."""
    rows = []
    for file in sorted((DOCS / "decisions").glob("0*.md")):
        number, title = file.read_text().partition("\n")[0].removeprefix("# ").split(" ", 1)
        rows.append((f"[{number}]({file.name})", title))
    return _table(("", "Decision"), rows)


def summary(module: Path) -> str:
    """The first line of a module's docstring, or nothing."""
    return (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n")[0]


TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "settings": (REFERENCE, settings_table),
    "commands": (REFERENCE, commands_table),
    "exit codes": (REFERENCE, exit_codes_table),
    "packages": (DOCS / "architecture.md", packages_table),
    "decisions": (DOCS / "decisions" / "README.md", decisions_table),
}
"""For each table, the document that has it, and how it is made."""


def with_table(text: str, name: str) -> str:
    """The document with the table inserted between `<!-- name -->` and `<!-- /name -->`."""
    _, make = TABLES[name]
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not marked.search(text):
        raise ValueError(f"There is no marker for the table of {name}.")
    return marked.sub(lambda found: found[1] + make() + found[2], text)


def _arguments(command: click.Command) -> list[str]:
    if isinstance(command, click.Group):
        return []
    pieces = command.collect_usage_pieces(click.Context(command))
    return [piece for piece in pieces if piece != "[OPTIONS]"]


def every_command(
    group: click.Group = petstore, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The commands of a group and of those in it, each with the words that it begins with."""
    for name, command in subcommands(group).items():
        if isinstance(command, click.Group):
            yield from every_command(command, (*words, name))
        else:
            yield (*words, name), command


def subcommands(group: click.Group) -> Mapping[str, click.Command]:
    """The commands of a group by name, in the order of its help, whichever of the root's were imported before."""
    if group is not petstore:
        return group.commands
    context = click.Context(group)
    found = {name: group.resolve_command(context, [name])[1] for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header)]
    lines.append(["---"] * len(lines[0]))
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


if __name__ == "__main__":
    for table_name, (document, _) in TABLES.items():
        document.write_text(with_table(document.read_text(), table_name))
