"""`petstore-client` and its commands."""

import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from petstore_client._client import Client
from petstore_client._types import RateLimitEvent, RetryEvent
from petstore_client._version import __version__
from petstore_client.cli.console import EXIT_CODES_HELP, Root, report
from petstore_client.cli.output import with_progress, write_columns, write_json, write_table
from petstore_client.errors import ConflictError, NotFoundError, PetstoreError


class OrderId(click.ParamType[int]):
    """An order identifier: a whole number of at most 64 bits in plain digits (D4)."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text) or not -(2**63) <= int(text) < 2**63:
            self.fail(f"'{text}' is not an order identifier, which is a whole number of at most 64 bits.", param, ctx)
        return int(text)


JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON array; errors become JSON on stderr.")
JSONL = click.option("--jsonl", "as_lines", is_flag=True, help="Write one JSON object per line; errors likewise.")


@click.group(cls=Root, epilog=EXIT_CODES_HELP)
@click.version_option(__version__, prog_name="petstore-client")
@click.option("--base-url", metavar="URL", help="Address of the API, ending with /v1. Default: PETSTORE_BASE_URL.")
@click.option("--max-wait", type=click.FloatRange(0), default=75.0, help="Seconds to wait for a limit to reset (75).")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=30.0, help="Seconds to wait for a response (30)."
)
@click.option("--verbose", is_flag=True, help="Log every request to stderr, without the key.")
@click.pass_context
def petstore_client(ctx: click.Context, base_url: str | None, max_wait: float, timeout: float, verbose: bool) -> None:
    """List and cancel the orders of a pet store. Set PETSTORE_API_KEY to the API key; it is not an option,
    because options appear in the process list.

    \b
    Examples:
      export PETSTORE_BASE_URL=https://api.example.com/v1 PETSTORE_API_KEY=pso_live_…
      petstore-client orders list
      petstore-client orders cancel 42
    """
    if verbose:
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("petstore_client").setLevel(logging.DEBUG)
    ctx.obj = {
        "base_url": base_url,
        "max_wait": max_wait,
        "timeout": timeout,
        "on_retry": _report_retry,
        "on_rate_limit": _report_limit,
    }


@petstore_client.group()
def orders() -> None:
    """List and cancel orders."""


@orders.command("list")
@JSON
@JSONL
@click.pass_obj
def list_orders(options: dict[str, Any], as_json: bool, as_lines: bool) -> None:
    """List all orders, ascending by id: a table on a terminal, columns in a pipe. The list is
    printed while it arrives.

    \b
    Examples:
      petstore-client orders list
      petstore-client orders list --jsonl | grep '"complete":true'
    """
    _not_both(as_json, as_lines)
    with Client(**options) as client:
        found = with_progress(client.iter_orders())
        if as_json or as_lines:
            write_json(found, as_lines)
        elif sys.stdout.isatty():
            write_table(found)
        else:
            write_columns(found)


@orders.command("cancel", context_settings={"ignore_unknown_options": True})
@click.argument("order_ids", type=OrderId(), nargs=-1, required=True, metavar="ID...")
@JSON
@JSONL
@click.pass_context
def cancel_orders(ctx: click.Context, order_ids: tuple[int, ...], as_json: bool, as_lines: bool) -> None:
    """Cancel pending orders. Each ID is tried; the exit code is that of the first failure.

    \b
    Example:
      petstore-client orders cancel 42 43
    """
    _not_both(as_json, as_lines)
    codes: list[int] = []

    def cancelled() -> Iterator[dict[str, object]]:
        with Client(**ctx.obj) as client:
            for order_id in order_ids:
                try:
                    client.cancel_order(order_id)
                except (NotFoundError, ConflictError) as error:
                    codes.append(report(error, as_json or as_lines))
                except PetstoreError as error:
                    codes.append(report(error, as_json or as_lines))
                    return  # this error would stop the others as well
                else:
                    yield {"id": order_id, "cancelled": True}

    if as_json or as_lines:
        write_json(cancelled(), as_lines)
    else:
        for done in cancelled():
            sys.stdout.write(f"order {done['id']}: cancelled\n")
            sys.stdout.flush()
    ctx.exit(codes[0] if codes else 0)


def _not_both(as_json: bool, as_lines: bool) -> None:
    if as_json and as_lines:
        raise click.UsageError("--json and --jsonl cannot be combined.")


def _report_retry(event: RetryEvent) -> None:
    click.echo(f"petstore-client: {event.error} Retrying in {event.wait:.0f} s.", err=True)


def _report_limit(event: RateLimitEvent) -> None:
    if event.waits:
        until = event.retry_at.astimezone().strftime("%H:%M:%S")
        click.echo(f"petstore-client: The limit is used up; continuing at {until}.", err=True)
