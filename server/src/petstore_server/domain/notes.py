"""Notes: text that operators attach to accounts and keys."""

from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.leaked_keys import looks_like_key

_LONGEST = 200


def check_note(text: str, name: str = "note") -> str:
    """Return the text if it is usable: one line, without an API key. `name` says what it is. Raises InvalidInput."""
    if len(text) > _LONGEST or not (text.isprintable() or not text):
        raise InvalidInput(f"A {name} is one line of at most {_LONGEST} characters, without control characters.")
    if looks_like_key(text):
        raise InvalidInput(f"The {name} holds an API key and is shown in lists; give the key's id instead.")
    return text
