"""From text to values: booleans, integers and statuses in the forms that shops and spreadsheets export.

Only what is unambiguous is converted. For the rest the operator gives options, and the reasons name them.
"""

import re
from collections.abc import Callable, Iterable

from petstore_server.domain.orders import STATUSES, Status
from petstore_server.domain.remedies import Choice, Remedy, choose
from petstore_server.imports.options import EVERY_STATUS

Cell = Callable[[str], object]
"""Converts the text of a cell. Returns text that it cannot convert as it is, or raises ValueError with the problem."""


class UnclearCell(ValueError):
    """The text of a cell cannot be read without a choice; the text completes a sentence about it."""

    def __init__(self, problem: str, remedy: Remedy) -> None:
        super().__init__(problem)
        self.remedy = remedy


PLAIN_DIGITS = re.compile(r"0|-?[1-9][0-9]{0,99}", re.ASCII)
_ZERO_DECIMALS = re.compile(r"(0|-?[1-9][0-9]{0,15})[.,]0{1,9}", re.ASCII)
_GROUPED = re.compile(
    r"(?P<whole>-?[1-9][0-9]{0,2}"
    r"(?:([ \u00a0\u202f'\u2019])[0-9]{3}(?:\2[0-9]{3}){0,32}|([.,])[0-9]{3}(?:\3[0-9]{3}){1,32}))"
)
_GROUPED_WITH_DECIMALS = re.compile(
    r"(?P<whole>-?[1-9][0-9]{0,2}(?:([ \u00a0\u202f'\u2019.,])[0-9]{3})(?:\2[0-9]{3}){0,4})(?!\2)[.,]0{1,9}"
)
_GROUP_OR_DECIMALS = re.compile(r"(-?[1-9][0-9]{0,2})([.,])([0-9]{3})", re.ASCII)
_SHORTENED = re.compile(r"-?[0-9](?:[.,][0-9]+)?E\+[0-9]+", re.ASCII | re.IGNORECASE)
_KEPT_AS_TEXT = re.compile(r"'-?[0-9]+|=\"-?[0-9]+\"", re.ASCII)  # by marks of a spreadsheet program
_AS_TEXT = Remedy("export the file again, and keep spreadsheet programs from changing the column: format it as text")
_OTHER_MARK = {".": ",", ",": "."}
_EXACT_AS_FLOAT = 2**53


def integer_cell(text: str, decimal: str | None = None) -> int | str:
    """A whole number of any size; the domain decides whether it fits.

    Besides plain digits: digits grouped by spaces or apostrophes, or by equal points or commas if that has one meaning,
    and decimals that are zeros where a floating-point number is exact. Text such as `007` is returned. Raises
    UnclearCell for `1.000`, which may be 1 or 1000, unless the decimal mark of the file, `.` or `,`, is given, and for
    what a spreadsheet program has made of a number.
    """
    text = text.strip()
    if PLAIN_DIGITS.fullmatch(text):
        return int(text)
    if match := _GROUP_OR_DECIMALS.fullmatch(text):
        return _group_or_decimals(match, decimal)
    if (match := _ZERO_DECIMALS.fullmatch(text)) and abs(int(match[1])) <= _EXACT_AS_FLOAT:
        return int(match[1])
    if match := _GROUPED.fullmatch(text) or _GROUPED_WITH_DECIMALS.fullmatch(text):
        return int(re.sub(r"[^0-9-]", "", match["whole"]))
    if _SHORTENED.fullmatch(text):
        raise UnclearCell("was shortened by a spreadsheet program, which has lost its digits", _AS_TEXT)
    if _KEPT_AS_TEXT.fullmatch(text):
        raise UnclearCell("has marks of a spreadsheet program at its digits", Remedy("leave out the marks"))
    return text


def _group_or_decimals(match: re.Match[str], decimal: str | None) -> int | str:
    whole, mark, digits = match.groups()
    if decimal is None:
        decimals = f"{whole}.{digits}" if digits.strip("0") else whole
        then = f"{{}} if it is {whole}{digits} or {{}} if it is {decimals}"
        # The first choice makes thousands, so that cells with a point and cells with a comma are counted apart.
        choices = Choice("decimal", _OTHER_MARK[mark]), Choice("decimal", mark)
        raise UnclearCell("can be read in two ways", Remedy(then, choices))
    if mark != decimal:
        return int(whole + digits)
    return match[0] if digits.strip("0") else int(whole)


_TRUE = "true 1 yes y t wahr ja vrai oui verdadero sí si verdadeiro sim vero sì waar"
_FALSE = "false 0 no n f falsch nein faux non falso não nao onwaar nee"
_BOOLEANS = {**dict.fromkeys(_TRUE.split(), True), **dict.fromkeys(_FALSE.split(), False)}


def boolean_cell(text: str) -> bool | str:
    """A boolean, in any case: true or false, 1 or 0, yes or no, also as spreadsheets in other languages write them."""
    return _BOOLEANS.get(text.strip().lower(), text)


FLAGS = (str(Status.CANCELLED), str(Status.SHIPPED))
"""The fields that a column may be instead of `status`: a filled cell gives that status, the first one before others."""

_OTHER_SPELLING = {"canceled": "cancelled"}
MAX_FOUND = 50
_MAX_SHOWN_STATUS = 60  # characters of a value that are named
_STATUS_WORDS = {
    "shipped": "fulfilled complete completed delivered dispatched sent",
    "pending": "unfulfilled unshipped processing on-hold new open",
    "cancelled": "cancel voided",
}
_STATUS_OF_WORD = {word: status for status, words in _STATUS_WORDS.items() for word in words.split()}


class Statuses:
    """Reads statuses, in any case, and other words for them as they are `given`: pairs of a value and a status.

    `found` has the different words that were read, each as it is first in the file, up to a number.
    """

    def __init__(self, given: Iterable[tuple[str, str]] = ()) -> None:
        words = {value.casefold(): status for value, status in given}
        self.of_empty = words.get("")  # the status where there is none
        self._rest = words.get(EVERY_STATUS)
        self.found = dict[str, str]()
        self._words = {**dict(zip(STATUSES, STATUSES, strict=True)), **_OTHER_SPELLING, **words}

    def __call__(self, text: str) -> str:
        """The status that a text means. Raises UnclearCell with the option for this value."""
        word, shown = text.strip().casefold(), self.note(text)
        status = self._words.get(word, self._rest)
        if status is None:
            remedy = choose("map_status", f"{shown}={_STATUS_OF_WORD.get(word.removeprefix('wc-'), 'STATUS')}")
            raise UnclearCell(f"is none of {', '.join(STATUSES)}", remedy)
        return status

    def note(self, text: str) -> str:
        """Note a text of the file; return the name for it in choices, which for a long one is that of every other."""
        name = text.strip()
        if len(name) > _MAX_SHOWN_STATUS:
            name = EVERY_STATUS
        if len(self.found) < MAX_FOUND:
            self.found.setdefault(name.casefold(), name)
        return name


def is_filled(value: object) -> bool:
    """Whether a cell or a JSON value says that an order was cancelled or shipped, usually by the time of that."""
    if isinstance(value, str):
        return bool(value.strip()) and boolean_cell(value) is not False
    return bool(value)
