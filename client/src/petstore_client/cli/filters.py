"""The filters of `orders list`, which use version 2 of the API."""

import itertools
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


INTEGER = click.IntRange(-(2**63), 2**63 - 1)
_OPTIONS = (
    click.option("--status", type=click.Choice(get_args(Status)), multiple=True, help="Only this state; repeatable."),
    click.option("--pet-id", type=INTEGER, metavar="ID", help="Only orders of this pet."),
    click.option(
        "--complete",
        type=click.Choice(["true", "false"]),
        is_flag=False,
        flag_value="true",
        metavar="[true|false]",
        help="Only orders that are complete, or with false only those that are not.",
    ),
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


def given(filters: dict[str, Any]) -> dict[str, Any]:
    """The filters that the user gave."""
    found = {name: value for name, value in filters.items() if value not in (None, ())}
    return {name: value == "true" if name == "complete" else value for name, value in found.items()}


def filtered(iter_orders: Callable[..., Iterator[Order]], filters: dict[str, Any]) -> Iterator[Order]:
    """The orders that match, at most `limit` of them, from pages that are no larger than that."""
    limit = filters.pop("limit", None)
    found = iter_orders(**filters, limit=min(limit or MAX_PAGE, MAX_PAGE))
    return itertools.islice(found, limit)
