"""Text that is kept, shown or logged: finding and hiding API keys in it, escaping it; notes of operators."""

import re
from string import hexdigits

from petstore_server.domain.errors import InvalidInput

_MAX_NOTE = 200
_BETWEEN = r"[^0-9A-Za-z\s\"]*+"
_LIVE, _TEST = map(_BETWEEN.join, ("psolive", "psotest"))
_KEY = re.compile(rf"(?:({_LIVE})|{_TEST})(?:{_BETWEEN}[0-9A-Za-z])++", re.ASCII | re.IGNORECASE)
"""A prefix and at least one more character, in either case, with any punctuation between: up to a blank or a quote."""

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and line feed, surrogates (bytes of an argument that are not UTF-8), and characters
that change the direction of text.
"""
_UPPER = re.compile("[A-Z]")
_HEX_DIGITS = frozenset(hexdigits)


def looks_like_key(text: str) -> bool:
    """Whether the text holds an API key, complete or not, however it is spelled."""
    return bool(_KEY.search(percent_decoded(text.replace('"', ""))))


def hide_keys(text: str) -> str:
    """The text with every API key in it, complete or not, cut to its prefix; percent-decoded if it holds one."""
    hidden, count = _KEY.subn(lambda key: f"pso_{'live' if key[1] else 'test'}_[hidden]", percent_decoded(text))
    return hidden if count else text


def percent_decoded(text: str) -> str:
    """The text without percent-encoding, however often it was encoded, in one pass: clients choose such texts."""
    if "%" not in text:
        return text
    *parts, last = text.split("%")
    after = list(reversed(last))  # what was decoded, backwards
    for part in reversed(parts):
        decoded = "%"
        while decoded == "%" and len(after) > 1 and _HEX_DIGITS.issuperset(after[-2:]):
            decoded = chr(int(after.pop() + after.pop(), 16))
        after.append(decoded)
        after.extend(reversed(part))
    return "".join(reversed(after))


def escape_unsafe(text: str) -> str:
    """The text with escapes such as `\\x1b` for UNSAFE characters, so that it cannot move a cursor or forge a line."""
    return UNSAFE.sub(_as_escape, text)


def _as_escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is not UTF-8 (PEP 383)
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def in_words(name: str) -> str:
    """A name in camelCase as words: per minute for perMinute."""
    return _UPPER.sub(lambda letter: f" {letter[0].lower()}", name)


def check_note(text: str, name: str = "note") -> str:
    """Return the text if it is usable: one line, without an API key. `name` says what it is. Raises InvalidInput."""
    if len(text) > _MAX_NOTE or not text.isprintable():
        raise InvalidInput(f"A {name} is one line of at most {_MAX_NOTE} characters, without control characters.")
    if looks_like_key(text):
        raise InvalidInput(f"The {name} holds an API key and is shown in lists; give the key's id instead.")
    return text
