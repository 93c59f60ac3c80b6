"""Parameter types: what operators type, parsed into what the domain takes. Bad input is wrong usage (exit code 2)."""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from petstore_server.cli.stores import now, with_store
from petstore_server.domain.accounts import Limits, Plan, check_account_name, plan_limits
from petstore_server.domain.errors import InvalidInput, InvalidOrderId
from petstore_server.domain.leaked_keys import looks_like_key
from petstore_server.domain.orders import parse_order_id
from petstore_server.domain.timestamps import parse_duration, parse_when
from petstore_server.operations.audit import check_operator_name
from petstore_server.store import Store

T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Text(click.ParamType[str]):
    """Text of an argument or option, which must be UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _SURROGATE.search(str(value)):
            self.fail(f"'{value}' is not UTF-8; check the encoding of your terminal or script.", param, ctx)
        return str(value)


class OrderId(click.ParamType[int]):
    """An order identifier in its one plain form (D4)."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_order_id(str(value))
        except InvalidOrderId as error:
            if str(value).startswith("-"):
                raise click.NoSuchOption(str(value), ctx=ctx) from None
            self.fail(f"'{value}': {error.message}", param, ctx)


class FileToWrite(click.Path):
    """A file whose directory exists, or `-` for stdout if `allow_dash`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("The name of the file is empty.", param, ctx)
        if not Path(value).parent.is_dir():
            missing = Path(value).parent
            self.fail(f"The directory {missing} does not exist; create it or choose another name.", param, ctx)
        return super().convert(value, param, ctx)


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, allow_dash=True)


class WholeNumber(click.IntRange):
    """A whole number within bounds."""

    name = "whole number"


class Name(Text):
    """A name that a function checks, which raises InvalidInput."""

    name = "name"

    def __init__(self, check: Callable[[str], str]) -> None:
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return self._check(super().convert(value, param, ctx))
        except InvalidInput as error:
            self.fail(error.message, param, ctx)


NEW_ACCOUNT_NAME = Name(check_account_name)
OPERATOR_NAME = Name(check_operator_name)
"""For the audit log."""


class AccountName(Text):
    """The name of an account in the store, which the shell completes."""

    name = "account"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The accounts whose names start with what was typed."""
        accounts = _listed(lambda store: store.accounts.list())
        return [CompletionItem(each.name, help=each.plan) for each in accounts if each.name.startswith(incomplete)]


class KeyId(Text):
    """The id of a key in the store, which the shell completes."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        if looks_like_key(text):
            self.fail(
                "This is an API key, and commands take the key's id, such as key_3kTMd9QxBv1a. Other users of this "
                "machine can see arguments, and your shell may have saved it: rotate the key.",
                param,
                ctx,
            )
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The keys whose ids start with what was typed."""
        keys = _listed(lambda store: store.keys.list())
        return [CompletionItem(each.id, help=each.account) for each in keys if each.id.startswith(incomplete)]


class When(click.ParamType[datetime]):
    """A time: RFC 3339, a date, or a duration from now (before now if `past`)."""

    name = "when"

    def __init__(self, *, past: bool = False) -> None:
        self._past = past

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return parse_when(str(value), now(), past=self._past)
        except InvalidInput as error:
            self.fail(error.message, param, ctx)


class Duration(click.ParamType[int]):
    """A duration in seconds, such as 24h, or 0."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return 0 if value == "0" else parse_duration(str(value))
        except ValueError as error:
            self.fail(f"'{value}' {error}.", param, ctx)


def limits_of(plan: Plan, per_minute: int | None, per_day: int | None) -> Limits:
    """The limits of the plan from what was typed; wrong numbers are wrong usage."""
    try:
        return plan_limits(plan, per_minute, per_day)
    except InvalidInput as error:
        message = f"{error.message} The options are --per-minute and --per-day."
        raise click.UsageError(message, click.get_current_context()) from None


def _listed(find: Callable[[Store], Awaitable[list[T]]]) -> list[T]:
    """What is found in the store; nothing if it cannot be read."""
    try:
        return with_store(find)
    except Exception:  # noqa: BLE001 - a shell that completes must not print an error
        return []
