"""The status of an order in a file: the words of shops for it, and columns that are filled once it has it."""

from collections.abc import Iterable

from petstore_server.domain.orders import STATUSES, Status
from petstore_server.domain.remedies import choose
from petstore_server.imports.conversions import UnclearCell, boolean_cell
from petstore_server.imports.options import EVERY_STATUS

FLAGS = (str(Status.CANCELLED), str(Status.SHIPPED))
"""The fields that a column may be instead of `status`: a filled cell gives that status, the first one before others."""

_OTHER_SPELLING = {"canceled": "cancelled"}
MAX_FOUND = 50
_MAX_VALUE = 60  # characters of a value that are named
_USUAL = {
    "shipped": "fulfilled complete completed delivered dispatched sent",
    "pending": "unfulfilled unshipped processing on-hold new open",
    "cancelled": "cancel voided",
}
_MEANING = {word: status for status, words in _USUAL.items() for word in words.split()}


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
        word = text.strip().casefold()
        if len(self.found) < MAX_FOUND and len(word) <= _MAX_VALUE:
            self.found.setdefault(word, text.strip())
        status = self._words.get(word, self._rest)
        if status is None:
            shown = text.strip() if len(word) <= _MAX_VALUE else EVERY_STATUS
            remedy = choose("map_status", f"{shown}={_MEANING.get(word.removeprefix('wc-'), 'STATUS')}")
            raise UnclearCell(f"is none of {', '.join(STATUSES)}", remedy)
        return status


def is_filled(value: object) -> bool:
    """Whether a cell or a JSON value says that an order was cancelled or shipped, usually by the time of that."""
    if isinstance(value, str):
        return bool(value.strip()) and boolean_cell(value) is not False
    return bool(value)
