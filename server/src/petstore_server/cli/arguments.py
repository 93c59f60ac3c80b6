"""Parameter types: what operators type, parsed into what the domain takes. Bad input is wrong usage (exit code 2)."""

import re
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from petstore_server.cli.stores import with_store
from petstore_server.domain.accounts import Limits, Plan, check_account_name, plan_limits
from petstore_server.domain.errors import InvalidInput, InvalidOrderId
from petstore_server.domain.orders import parse_order_id
from petstore_server.domain.texts import looks_like_key
from petstore_server.domain.timestamps import parse_duration, parse_when
from petstore_server.operations.audit import check_operator_name
from petstore_server.store import Store

T = TypeVar("T")
Suggestions = Callable[[Store], Awaitable[Iterable[tuple[str, str]]]]
"""Finds what the shell may complete: texts, each with a description."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class Parsed(click.ParamType[T]):
    """Text, which must be UTF-8, as a function reads it. Its InvalidInput or ValueError is wrong usage.

    The message of a ValueError is the end of a sentence about the text.
    """

    def __init__(self, name: str, read: Callable[[str], T], suggestions: Suggestions | None = None) -> None:
        self.name = name
        self._read = read
        self._suggestions = suggestions

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if _SURROGATE.search(value):
            self.fail(f"'{value}' is not UTF-8; check the encoding of your terminal or script.", param, ctx)
        try:
            return self._read(value)
        except InvalidInput as error:
            self.fail(error.message, param, ctx)
        except ValueError as error:
            self.fail(f"'{value}' {error}.", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """What begins with what was typed; nothing if the store cannot be read."""
        try:
            found = with_store(self._suggestions) if self._suggestions else ()
        except Exception:  # noqa: BLE001 - a shell that completes must not print an error
            return []
        return [CompletionItem(text, help=about) for text, about in found if text.startswith(incomplete)]


class WholeNumber(click.IntRange):
    """A whole number within bounds."""

    name = "whole number"


class FileToWrite(click.Path):
    """A file whose directory exists, or `-` for stdout if `allow_dash`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("The name of the file is empty.", param, ctx)
        if not (parent := Path(value).parent).is_dir():
            self.fail(f"The directory {parent} does not exist; create it or choose another name.", param, ctx)
        return super().convert(value, param, ctx)


def _order_id(text: str) -> int:
    try:
        return parse_order_id(text)
    except InvalidOrderId as error:
        if text.startswith("-"):
            raise click.NoSuchOption(text, ctx=click.get_current_context()) from None
        raise InvalidInput(f"'{text}': {error.message}") from None


def _key_id(text: str) -> str:
    if looks_like_key(text):
        raise InvalidInput(
            "This is an API key, and commands take the key's id, such as key_3kTMd9QxBv1a. Other users of this "
            "machine can see arguments, and your shell may have saved it: rotate the key."
        )
    return text


async def _accounts(store: Store) -> list[tuple[str, str]]:
    return [(each.name, each.plan) for each in await store.accounts.list()]


async def _keys(store: Store) -> list[tuple[str, str]]:
    return [(each.id, each.account) for each in await store.keys.list()]


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, allow_dash=True)

TEXT = Parsed("text", str)
ACCOUNT_NAME = Parsed("name", str, _accounts)  # of an account in the store
NEW_ACCOUNT_NAME = Parsed("name", check_account_name)
KEY_ID = Parsed("id", _key_id, _keys)
ORDER_ID = Parsed("id", _order_id)  # in its one plain form (D4)
OPERATOR_NAME = Parsed("name", check_operator_name)  # for the audit log
WHEN = Parsed("when", lambda text: parse_when(text, datetime.now(UTC)))  # RFC 3339, a date, or a duration from now
FUTURE = Parsed("when", lambda text: parse_when(text, datetime.now(UTC)).timestamp())  # in Unix seconds
PAST = Parsed("when", lambda text: parse_when(text, datetime.now(UTC), past=True).timestamp())  # durations before now
DURATION = Parsed("duration", lambda text: 0 if text == "0" else parse_duration(text))  # in seconds


def limits_of(plan: Plan, per_minute: int | None, per_day: int | None) -> Limits:
    """The limits of the plan from what was typed; wrong numbers are wrong usage."""
    try:
        return plan_limits(plan, per_minute, per_day)
    except InvalidInput as error:
        message = f"{error.message} The options are --per-minute and --per-day."
        raise click.UsageError(message, click.get_current_context()) from None
