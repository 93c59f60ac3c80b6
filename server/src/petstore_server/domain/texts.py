"""Text that is kept, shown or logged: what it may hold, finding and hiding API keys in it, escaping it; notes."""

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

# What is printable does not go by the tables of Python, which differ from version to version. A character that is not
# assigned yet is printable: it may be assigned when it is read, and Unicode keeps ranges for those that show nothing.
_UNPRINTABLE = (  # controls, spaces but U+0020, formats, tags, halves of surrogate pairs, private use
    "\0-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    "\ud800-\uf8ff\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U0010ffff"
)
_SHOWS_NOTHING = (  # fillers, joiners, variation selectors, blank symbols
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00013441\U00013442\U00016fe4\U0001d159\U000e0100-\U000e01ef"
)
_NOT_PRINTABLE, _NOT_VISIBLE = re.compile(f"[{_UNPRINTABLE}]"), re.compile(f"[{_UNPRINTABLE}{_SHOWS_NOTHING}]")
_UPPER = re.compile("[A-Z]")
_HEX_DIGITS = frozenset(hexdigits)


def is_printable(text: str) -> bool:
    """Whether the text is on one line and has no control, format or private character, and no space but U+0020."""
    return text.isprintable() if text.isascii() else _NOT_PRINTABLE.search(text) is None


def is_visible(text: str) -> bool:
    """Whether the text is printable and has no character that shows nothing, such as a variation selector.

    Such a text does not look empty, unless it consists of spaces, or like another one that lacks the character.
    """
    return text.isprintable() if text.isascii() else _NOT_VISIBLE.search(text) is None


def visible_part(text: str) -> str:
    """The text without the characters for which `is_visible` is false."""
    return _NOT_VISIBLE.sub("", text)


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
    if len(text) > _MAX_NOTE or not is_printable(text):
        raise InvalidInput(f"A {name} is one line of at most {_MAX_NOTE} characters, without control characters.")
    if looks_like_key(text):
        raise InvalidInput(f"The {name} holds an API key and is shown in lists; give the key's id instead.")
    return text
