"""`petstore completion`: the script with which a shell completes this command line."""

import click
from click.shell_completion import get_completion_class

from petstore_server.cli.commands import Command
from petstore_server.cli.output import show


@click.command(cls=Command)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    Save it where the shell reads it at its start.

    \b
    Examples:
      petstore completion bash > ~/.local/share/bash-completion/completions/petstore
      petstore completion zsh > ~/.zfunc/_petstore
      petstore completion fish > ~/.config/fish/completions/petstore.fish
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    script = kind(root, {}, "petstore", "_PETSTORE_COMPLETE").source()
    show({"shell": shell, "script": script}, lambda: script)
