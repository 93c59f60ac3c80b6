"""The filters of `orders list`, which use version 2 of the API."""

import itertools
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, get_args

import click

from petstore_client._types import read_timestamp
from petstore_client.v2 import Order, Sort, Status

MAX_PAGE = 1000


def timestamp(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """An RFC 3339 date-time with an offset, as an aware datetime. Raises BadParameter."""
    if value is None:
        return None
    try:
        return read_timestamp(value)
    except ValueError:
        wanted = "an RFC 3339 date-time with an offset, such as 2026-11-01T10:00:00Z"
        raise click.BadParameter(f"'{value}' is not {wanted}.", ctx, param) from None


_BOOLEAN: Any = {"type": click.Choice(["true", "false"]), "flag_value": "true", "metavar": "[true|false]"}
INTEGER = click.IntRange(-(2**63), 2**63 - 1)
_OPTIONS = (
    click.option("--status", type=click.Choice(get_args(Status)), multiple=True, help="Only this status; repeatable."),
    click.option("--pet-id", type=INTEGER, metavar="ID", help="Only orders of this pet."),
    click.option("--complete", is_flag=False, **_BOOLEAN, help="Only complete orders, or with false only the others."),
    click.option("--ship-date-from", callback=timestamp, metavar="WHEN", help="Only orders that ship then or later."),
    click.option("--ship-date-to", callback=timestamp, metavar="WHEN", help="Only orders that ship before."),
    click.option("--updated-from", callback=timestamp, metavar="WHEN", help="Only orders that changed then or later."),
    click.option("--reference", multiple=True, metavar="TEXT", help="Only this reference; repeatable."),
    click.option("--sort", type=click.Choice(get_args(Sort)), help="The order of the list; - for descending."),
    click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N orders at most."),
)


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the filters to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filtered(
    iter_orders: Callable[..., Iterator[Order]], limit: int | None = None, complete: str | None = None, **more: Any
) -> Iterator[Order]:
    """The orders that match, at most `limit` of them, from pages that are no larger than that."""
    found = iter_orders(**more, complete=complete and complete == "true", limit=min(limit or MAX_PAGE, MAX_PAGE))
    return itertools.islice(found, limit and min(limit, sys.maxsize))
