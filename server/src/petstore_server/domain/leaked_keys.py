"""API keys in other text: finding and hiding them."""

import re

_LEAKED = re.compile(r"(pso_(?:live|test)_)[0-9A-Za-z]+", re.ASCII)


def looks_like_key(text: str) -> bool:
    """Whether the text holds an API key, complete or not."""
    return bool(_LEAKED.search(text))


def hide_keys(text: str) -> str:
    """The text with every API key in it, complete or not, cut to its prefix."""
    return _LEAKED.sub(r"\1[hidden]", text) if "pso_" in text else text
