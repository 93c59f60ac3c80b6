"""Text that is kept, shown or logged: finding and hiding API keys in it; notes of operators."""

import re

from petstore_server.domain.errors import InvalidInput

_LONGEST_NOTE = 200
_LEAKED = re.compile(r"(pso_(?:live|test)_)[0-9A-Za-z]+", re.ASCII)


def looks_like_key(text: str) -> bool:
    """Whether the text holds an API key, complete or not."""
    return bool(_LEAKED.search(text))


def hide_keys(text: str) -> str:
    """The text with every API key in it, complete or not, cut to its prefix."""
    return _LEAKED.sub(r"\1[hidden]", text) if "pso_" in text else text


def check_note(text: str, name: str = "note") -> str:
    """Return the text if it is usable: one line, without an API key. `name` says what it is. Raises InvalidInput."""
    if len(text) > _LONGEST_NOTE or not (text.isprintable() or not text):
        raise InvalidInput(f"A {name} is one line of at most {_LONGEST_NOTE} characters, without control characters.")
    if looks_like_key(text):
        raise InvalidInput(f"The {name} holds an API key and is shown in lists; give the key's id instead.")
    return text
