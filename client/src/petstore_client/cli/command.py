"""`petstore-client` and its commands."""

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import click

import petstore_client as api  # which loads a client, and HTTP, when a command uses it
from petstore_client._types import Order, RateLimitEvent, RetryEvent
from petstore_client._version import __version__
from petstore_client.cli.console import EXIT_CODES_HELP, RETRY_TIMEOUT, log_to_stderr, report, say
from petstore_client.cli.filters import filter_options, filtered, given
from petstore_client.cli.output import COLUMNS, COLUMNS_V2, JsonWriter, write_columns, write_table
from petstore_client.errors import (
    AuthenticationError,
    ConfigurationError,
    PermissionDeniedError,
    PetstoreError,
    RateLimitError,
)

_ORDER_ID = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)

JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON array; errors are JSON on stderr.")
JSONL = click.option("--jsonl", "as_lines", is_flag=True, help="Write one JSON object per line; errors are JSON too.")
SECONDS = click.FloatRange(0, min_open=True)


@click.group(epilog=EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="petstore-client")
@click.option("--base-url", metavar="URL", help="Address of the API, ending with /v1. Default: PETSTORE_BASE_URL.")
@click.option("--max-wait", type=click.FloatRange(0), default=75.0, help="Seconds to wait for a limit to reset (75).")
@click.option("--timeout", type=SECONDS, default=30.0, help="Seconds to wait for a response (30).")
@click.option("--max-retries", type=click.IntRange(0), default=4, help="Attempts after a failed one (4); see below.")
@click.option("--deadline", type=SECONDS, help="Seconds that each call may take in all.")
@click.option("--verbose", is_flag=True, help="Log every request to stderr, without the key.")
@click.pass_context
def petstore_client(ctx: click.Context, /, verbose: bool, **options: Any) -> None:
    """List and cancel the orders of a pet store.

    Set PETSTORE_API_KEY to the API key. It is not an option, because options appear in the process list.

    While the service cannot be reached, a request is repeated for two minutes, unless --max-retries is
    0. Other failures that may pass are repeated as often as it says.

    \b
    Examples:
      export PETSTORE_BASE_URL=https://api.example.com/v1 PETSTORE_API_KEY=pso_live_…
      petstore-client orders list
      petstore-client orders list --status pending --pet-id 7
      petstore-client orders cancel 42
    """
    if verbose:
        log_to_stderr(ctx)
    ctx.obj = {**options, "on_retry": _report_retry, "on_rate_limit": _report_limit}


@petstore_client.group()
def orders() -> None:
    """List and cancel orders."""


@orders.command("list")
@filter_options
@JSON
@JSONL
@click.pass_obj
def list_orders(options: dict[str, Any], /, as_json: bool, as_lines: bool, **filters: Any) -> None:
    """List orders, ascending by id: a table on a terminal, columns in a pipe. The list is printed
    while it arrives.

    Without filters all orders are listed, by version 1 of the API. With a filter, --sort or
    --limit, the list comes from version 2, and shows the status and the last change as well. WHEN is
    an RFC 3339 date-time with an offset, such as 2026-11-01T10:00:00Z.

    \b
    Examples:
      petstore-client orders list
      petstore-client orders list --status pending --pet-id 7
      petstore-client orders list --sort=-updatedAt --limit 10 --jsonl
    """
    _not_both(as_json, as_lines)
    filters = given(filters)
    columns = COLUMNS_V2 if filters else COLUMNS
    with _connect(options) as client:
        found: Iterable[Order] = filtered(client.v2.iter_orders, filters) if filters else client.iter_orders()
        if as_json or as_lines:
            writer = JsonWriter(as_lines)
            for order in found:
                writer.write(order)
            writer.close()
        elif sys.stdout.isatty():
            write_table(found, columns)
        else:
            write_columns(found, columns)


@orders.command("cancel", context_settings={"ignore_unknown_options": True})
@click.argument("order_ids", nargs=-1, required=True, metavar="ID...|-")
@JSON
@JSONL
@click.pass_context
def cancel_orders(ctx: click.Context, order_ids: tuple[str, ...], as_json: bool, as_lines: bool) -> None:
    """Cancel pending orders. Each ID is tried, unless the key or an option stops them all; the exit code
    is that of the first failure.

    With - the IDs are read from stdin, one per line, and checked before the first order is
    cancelled. Ctrl-C and SIGTERM end the command; what was cancelled until then is printed.

    \b
    Examples:
      petstore-client orders cancel 42 43
      petstore-client orders cancel - --jsonl < ids.txt
    """
    _not_both(as_json, as_lines)
    numbers = _read_ids() if order_ids == ("-",) else [_order_id(text) for text in order_ids]
    in_json = as_json or as_lines
    with _connect(ctx.obj) as client:
        writer = JsonWriter(as_lines)
        try:
            code = _cancel_each(client, numbers, writer if in_json else None)
        finally:
            if in_json:
                writer.close()  # whatever ends the command, the list of what was done is valid JSON
    ctx.exit(code)


def _cancel_each(client: "api.Client", numbers: list[int], writer: JsonWriter | None) -> int:
    """Cancel orders one by one. Return the exit code, which is that of the first failure."""
    codes: list[int] = []
    for number in numbers:
        try:
            client.cancel_order(number)
            if writer is None:
                sys.stdout.write(f"order {number}: cancelled\n")
            else:
                writer.write({"id": number, "cancelled": True})
            sys.stdout.flush()
        except PetstoreError as error:
            codes.append(report(error, writer is not None, number))
            if isinstance(error, AuthenticationError | PermissionDeniedError | RateLimitError | ConfigurationError):
                break  # this error would stop the others as well
        except KeyboardInterrupt as error:
            error.add_note(f"Order {number} may have been cancelled: run the command again.")
            raise
    return codes[0] if codes else 0


def _connect(options: dict[str, Any]) -> "api.Client":
    """A client. Raises ConfigurationError, which names the options of this command."""
    base_url: str | None = options["base_url"]
    if not (os.environ.get("PETSTORE_BASE_URL") if base_url is None else base_url):
        raise ConfigurationError("There is no base URL: give --base-url, or set PETSTORE_BASE_URL.")
    if not os.environ.get("PETSTORE_API_KEY"):
        raise ConfigurationError("There is no API key: set PETSTORE_API_KEY.")
    return api.Client(**options, retry_timeout=RETRY_TIMEOUT)


def _read_ids() -> list[int]:
    """The identifiers on stdin, one per line; empty lines are skipped."""
    if sys.stdin.isatty():
        say("Enter one order identifier per line; end with Ctrl-D.")
    text = sys.stdin.buffer.read().decode("utf-8-sig", "backslashreplace")
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    return [_order_id(line, f"line {number}: ") for number, line in lines if line]


def _order_id(text: str, where: str = "") -> int:
    """An order identifier: a whole number of at most 64 bits in plain digits (D4)."""
    if not _ORDER_ID.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise click.UsageError(f"{where}'{text}' is not an order identifier: a whole number of at most 64 bits.")
    return int(text)


def _not_both(as_json: bool, as_lines: bool) -> None:
    if as_json and as_lines:
        raise click.UsageError("--json and --jsonl cannot be combined.")


def _report_retry(event: RetryEvent) -> None:
    say(f"petstore-client: {event.error} Retrying in {event.wait:.0f} s.")


def _report_limit(event: RateLimitEvent) -> None:
    if event.waits:
        until = event.retry_at.astimezone().strftime("%H:%M:%S")
        say(f"petstore-client: The limit is used up; continuing at {until}.")
