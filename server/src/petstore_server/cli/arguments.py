"""What operators type, read into what the domain takes; anything malformed is wrong usage (exit code 2)."""

from datetime import datetime
from typing import Any

import click

from petstore_server.cli.stores import now
from petstore_server.domain.accounts import Limits, Plan, check_account_name, plan_limits
from petstore_server.domain.errors import InvalidInput, InvalidOrderId
from petstore_server.domain.orders import parse_order_id
from petstore_server.domain.timestamps import parse_duration, parse_when


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


class AccountName(click.ParamType[str]):
    """The name of a new account."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return check_account_name(str(value))
        except InvalidInput as error:
            self.fail(error.message, param, ctx)


class When(click.ParamType[datetime]):
    """A moment: RFC 3339, or a span from now (back from now where `past`)."""

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
    """A length of time in seconds, such as 24h; 0 is none."""

    name = "span"

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
        raise click.UsageError(error.message, click.get_current_context()) from None
