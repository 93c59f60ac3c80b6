"""Parameter types: what operators type, parsed into what the domain takes. Bad input is wrong usage (exit code 2)."""

import re
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from petstore_server.domain.audit import check_operator_name
from petstore_server.domain.errors import InvalidInput, InvalidOrderId
from petstore_server.domain.orders import INT64_MAX, INT64_MIN, check_reference, is_int64, parse_order_id
from petstore_server.domain.texts import looks_like_key
from petstore_server.domain.timestamps import format_timestamp, parse_duration, parse_when

T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Parsed(click.ParamType[T]):
    """Text in UTF-8, as a function reads it. Its InvalidInput or ValueError (the end of a sentence) is wrong usage."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if _SURROGATE.search(value):
            self.fail(f"'{value}' is not UTF-8; check the encoding of your terminal or script.", param, ctx)
        try:
            return self._read(value)
        except InvalidInput as error:
            self.fail(error.message, param, ctx)
        except ValueError as error:
            self.fail(f"'{value}' {error}.", param, ctx)


class WholeNumber(click.IntRange):
    name = "whole number"


class FileToWrite(click.Path):
    """A file whose directory exists, or `-` for stdout if `allow_dash`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("The name of the file is empty.", param, ctx)
        parent = Path(value).parent
        if parent != Path() and not parent.is_dir():  # the current directory exists, if it can be read or not
            self.fail(f"The directory {parent} does not exist; create it or choose another name.", param, ctx)
        return super().convert(value, param, ctx)


def _order_id(text: str) -> int:
    try:
        return parse_order_id(text)
    except InvalidOrderId as error:
        if text.startswith("-"):
            raise click.NoSuchOption(text, ctx=click.get_current_context()) from None
        problem = "is not the identifier of an order, which is a whole number of at most 64 bits such as 42"
        with suppress(ValueError):
            found = f"petstore orders list --reference {shlex.quote(check_reference(text))}"
            problem += f"; if it is the shop's number of the order, `{found}` finds it"
        raise ValueError(problem) from error


def require_period(since: float, until: float) -> None:
    """Raises BadParameter if no time lies from `since` to before `until`."""
    if until <= since:
        raise click.BadParameter("The period is empty; give a later --until or an earlier --since.")


def key_id(text: str) -> str:
    """A key's id as it was typed. Raises InvalidInput for a key."""
    if looks_like_key(text):
        raise InvalidInput(
            "This is an API key, and commands take the key's id, such as key_3kTMd9QxBv1a. Other users of this "
            "machine can see arguments, and your shell may have saved it: rotate the key."
        )
    return text


def _int64(text: str) -> int:
    if not is_int64(text):
        raise ValueError("is not a whole number of at most 64 bits in plain digits")
    return int(text)


def _or_none(text: str, read: Callable[[str], T]) -> tuple[T | None]:
    """The value, or None for an empty text; in a tuple, because None is an option that is not given."""
    return (read(text) if text else None,)


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)  # the clock of all commands, which tests set in one place


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, allow_dash=True)

INT64 = WholeNumber(INT64_MIN, INT64_MAX)
TEXT = Parsed("text", str)
ORDER_ID = Parsed("id", _order_id)  # in its one plain form (D4)
OPERATOR_NAME = Parsed("name", check_operator_name)  # for the audit log
WHEN = Parsed("when", lambda text: parse_when(text, _now()))  # RFC 3339, a date, or a duration from now
FUTURE = Parsed("when", lambda text: parse_when(text, _now()).timestamp())  # in Unix seconds
PAST = Parsed("when", lambda text: parse_when(text, _now(), past=True).timestamp())  # durations before now
WHEN_OR_NONE = Parsed("when", lambda text: _or_none(text, lambda text: format_timestamp(parse_when(text, _now()))))
NUMBER_OR_NONE = Parsed("number", lambda text: _or_none(text, _int64))
REFERENCE = Parsed("reference", lambda text: check_reference(text, stored=True))  # that an order may have
REFERENCE_OR_NONE = Parsed("reference", lambda text: _or_none(text, check_reference))
DURATION = Parsed("duration", lambda text: 0 if text == "0" else parse_duration(text))  # in seconds
