"""The rows of a file that are rejected: what is wrong with each, and how many have the same fault."""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.imports import MAX_KEPT_REJECTS, Rejected
from petstore_server.domain.remedies import Choice, Remedy, with_remedy
from petstore_server.domain.texts import hide_keys

REJECT_FIELDS = ("line", "column", "reason", "raw")
"""The fields of a rejected row in a file of these."""

SHOWN_BYTES = 1 << 16  # the bytes of a rejected row that are quoted at most
MAX_NAME = 60  # of a column in reasons and their groups: a name may be as long as a row
_MAX_KEPT_TEXT = 2000  # characters of each text of a row that the store keeps
_MOST = {False: 20, True: 50}
"""Reasons that are shown: of other fields, and of the status, which has one for each value."""

_MOST_VALUES = 2  # of a reason that are shown besides the first

_Reason = tuple[str | None, str, tuple[Choice, ...]]  # column, problem and the choices of the remedy
Phrase = Callable[[Choice], str]
"""Writes a choice in the words of one face, such as `give --timezone UTC`."""


def in_words(choice: Choice) -> str:
    return f"choose {choice.name.replace('_', ' ')} {choice.value}".rstrip()


class Fault(NamedTuple):
    """What is wrong with a field, or with a row as a whole: in a sentence, and what to do about it.

    Faults are counted by their `problem`, which is the message without values and positions, and their choices.
    """

    message: str
    remedy: Remedy | None = None
    column: str | None = None
    problem: str = ""
    value: str | None = None  # as the message quotes it

    @classmethod
    def of(cls, error: InvalidField) -> "Fault":
        return cls(error.message, error.remedy, error.field, error.problem, error.quoted)

    @property
    def reason(self) -> _Reason:
        choices = self.remedy.choices if self.remedy else ()
        return self.column and self.column[:MAX_NAME], self.problem or self.message, choices

    def text(self, phrase: Phrase) -> str:
        return with_remedy(self.message, self.remedy, phrase)


class _Group(NamedTuple):
    """Faults with the same reason: how many, the line and the fault of the first, and the first other values."""

    number: int
    line: int
    fault: Fault
    others: tuple[str, ...] = ()

    def with_value(self, value: str | None) -> "_Group":
        """The group with one more fault."""
        others = self.others
        if value not in (None, self.fault.value, *others) and len(others) <= _MOST_VALUES:
            others += (value or "",)
        return _Group(self.number + 1, self.line, self.fault, others)

    def also(self) -> str:
        """The values of other rows, the first ones."""
        if not self.others:
            return ""
        more = " and others" if len(self.others) > _MOST_VALUES else ""
        return f" (also {', '.join(self.others[:_MOST_VALUES])}{more})"


class UnreadableRow(Exception):
    """A row as a whole cannot be read. `fields` and `faults` are of what can be read of it all the same."""

    def __init__(self, fault: Fault, fields: dict[str, Any] | None = None, faults: Sequence[InvalidField] = ()) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.fields = fields or {}
        self.faults = list(faults)


class Row(NamedTuple):
    """A row of the file; `line` is the physical line, from 1, on which it begins.

    `cells` are the texts of CSV by their fields, or what is wrong with the row.
    """

    line: int
    raw: bytes
    cells: dict[str, str] | Fault = {}  # noqa: RUF012 - not changed

    def reject(self, *faults: Fault) -> "Reject":
        """Reject the row; bytes that are not UTF-8 are quoted as \\xNN."""
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")  # which leaves out half a character
        text = decoder.decode(self.raw[:SHOWN_BYTES], final=len(self.raw) <= SHOWN_BYTES)
        return Reject(self.line, text, faults)


class Reject(NamedTuple):
    """A row that was not imported, and all that is wrong with it."""

    line: int
    raw: str
    faults: tuple[Fault, ...]

    @property
    def column(self) -> str | None:
        """The first field at fault, None for the whole row."""
        return self.faults[0].column

    def fields(self, phrase: Phrase) -> dict[str, object]:
        reason = " ".join(fault.text(phrase) for fault in self.faults)
        return dict(zip(REJECT_FIELDS, (self.line, self.column, reason, self.raw), strict=True))

    def recorded(self, phrase: Phrase) -> dict[str, object]:
        """The reject as the store keeps it: the beginning of a long row, and no API key."""
        return {
            name: hide_keys(value[:_MAX_KEPT_TEXT])[:_MAX_KEPT_TEXT] if isinstance(value, str) else value
            for name, value in self.fields(phrase).items()
        }


class Rejects:
    """Collects what was rejected, in bounded memory. `phrase` writes the remedies."""

    def __init__(self, file: IO[str] | None = None, *, phrase: Phrase = in_words, bounded: bool = False) -> None:
        """Rows go to `file` as JSON Lines with `line`, `column`, `reason` and `raw`, if it is given.

        If `bounded`, these are the first ones, as the store keeps them: one byte of a file can be a rejected row.
        """
        self.phrase = phrase
        self._file = file
        self._bounded = bounded
        self._groups: dict[_Reason, _Group] = {}
        self._others = 0  # rows none of whose faults is among those that are shown
        self.count = 0

    def add(self, rejects: Iterable[Reject]) -> None:
        """Write the rejects, and count their faults with those that have the same reason."""
        for reject in rejects:
            self.count += 1
            if self._file is not None and not (self._bounded and self.count > MAX_KEPT_REJECTS):
                fields = reject.recorded(self.phrase) if self._bounded else reject.fields(self.phrase)
                self._file.write(json.dumps(fields, ensure_ascii=False) + "\n")
            counted = [self._count(reject.line, fault) for fault in reject.faults]
            self._others += not any(counted)

    def _count(self, line: int, fault: Fault) -> bool:
        """Whether the fault is counted, because its reason is among the first ones."""
        group = self._groups.get(fault.reason, _Group(0, line, fault))
        is_status = fault.column == "status"
        if (
            not group.number
            and sum((reason[0] == "status") is is_status for reason in self._groups) >= _MOST[is_status]
        ):
            return False
        self._groups[fault.reason] = group.with_value(fault.value)
        return True

    def with_batch(self, rejects: Sequence[Reject]) -> Rejected:
        """What the record of the import gets with these, which are not added yet."""
        later = Rejects(phrase=self.phrase)
        later.count, later._others, later._groups = self.count, self._others, dict(self._groups)
        later.add(rejects)
        first = enumerate(rejects[: max(0, MAX_KEPT_REJECTS - self.count)], self.count)
        kept = [(number, reject.recorded(self.phrase)) for number, reject in first]
        return Rejected(len(rejects), kept, list(map(hide_keys, later.summary())))

    def summary(self) -> Iterator[str]:
        """One line for each reason, which are bounded in number: how many rows, the reason, the first row's line."""
        for group in self._groups.values():
            reason, line = group.fault.text(self.phrase), group.line
            many = f"{group.number} rows: {reason[:-1]}, first in line {line}{group.also()}"
            yield f"line {line}: {reason}" if group.number == 1 else many
        if self._others:
            yield f"{self._others} rows for other reasons"

    def problems(self) -> list[dict[str, object]]:
        """The reasons of the summary as values, for programs."""
        return [
            {
                "rows": group.number,
                "line": group.line,
                "column": column,
                "problem": problem,
                "choices": [choice._asdict() for choice in choices],
            }
            for (column, problem, choices), group in self._groups.items()
        ]
