"""The steps that messages of an import name, as an operator would take them."""

import re
import shlex

_OPTION = re.compile(r"give (--[a-z-]+(?: (?!(?:to|if|and|or|for|with)\b)(?:'[^']*'|[^\s;]+?(?=[.,;]?(?:\s|$))))?)")


def options_of(message: str) -> list[list[str]]:
    """The options that a message says to give, in their order."""
    return [shlex.split(option) for option in _OPTION.findall(message)]
