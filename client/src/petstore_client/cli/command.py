"""`petstore-client` and its commands."""

import os
import re
import sys
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

import petstore_client as api  # which loads a client, and HTTP, when a command uses it
from petstore_client import errors
from petstore_client._types import Order, RateLimitEvent, RetryEvent
from petstore_client._version import __version__
from petstore_client.cli import console
from petstore_client.cli.console import say
from petstore_client.cli.filters import INTEGER, filter_options, filtered, timestamp
from petstore_client.cli.output import COLUMNS, COLUMNS_V2, Output, usage_text
from petstore_client.v2 import Granularity

_ORDER_ID = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_TOKEN = re.compile(rb"\s*([!-~]{0,256})\s*")

JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON array; errors are JSON on stderr.")
JSONL = click.option("--jsonl", "as_lines", is_flag=True, help="Write one JSON object per line; errors are JSON too.")
CANCELLED = "may have been cancelled: run the command again."
IDS = click.argument("order_ids", nargs=-1, required=True, metavar="ID...|-")
SECONDS = click.FloatRange(0, min_open=True)


@click.group(epilog=console.EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="petstore-client")
@click.option("--base-url", metavar="URL", help="Address of the API, ending with /v1. Default: PETSTORE_BASE_URL.")
@click.option("--max-wait", type=click.FloatRange(0), default=75.0, help="Seconds to wait for a limit to reset (75).")
@click.option("--timeout", type=SECONDS, default=30.0, help="Seconds to wait for a response (30).")
@click.option("--max-retries", type=click.IntRange(0), default=4, help="Attempts after a failed one (4); see above.")
@click.option("--deadline", type=SECONDS, help="Seconds that each call may take in all (unlimited).")
@click.option("--verbose", is_flag=True, help="Log every request to stderr, without the key.")
@click.pass_context
def petstore_client(ctx: click.Context, /, verbose: bool, **options: Any) -> None:
    """List, follow, place and cancel the orders of a pet store.

    Set PETSTORE_API_KEY to the API key. It is not an option, because options appear in the process list.

    While the service cannot be reached, a request is repeated for two minutes. After another temporary failure
    it is repeated at most --max-retries times. With --max-retries 0 no failed attempt is repeated.

    \b
    Examples:
      export PETSTORE_BASE_URL=https://api.example.com/v1 PETSTORE_API_KEY=pso_live_…
      petstore-client orders list
      petstore-client orders list --status pending --pet-id 7
      petstore-client orders cancel 42
      petstore-client orders watch --state position
    """
    if verbose:
        console.log_to_stderr(ctx)
    ctx.obj = {**options, "on_retry": _report_retry, "on_rate_limit": _report_limit}


@petstore_client.group()
def orders() -> None:
    """List, show, follow, place and cancel orders."""


@orders.command("list")
@filter_options
@JSON
@JSONL
@click.pass_obj
def list_orders(options: dict[str, Any], /, as_json: bool, as_lines: bool, **filters: Any) -> None:
    """List orders, ascending by id: a table on a terminal, columns in a pipe.

    The list is printed while it arrives. Without filters all orders are listed, by version 1 of the API. With
    a filter, --sort or --limit, the list comes from version 2, and shows the status and the last change as
    well. WHEN is an RFC 3339 date-time with an offset, such as 2026-11-01T10:00:00Z.

    \b
    Examples:
      petstore-client orders list
      petstore-client orders list --status pending --pet-id 7
      petstore-client orders list --sort=-updatedAt --limit 10 --jsonl
    """
    output = Output(as_json, as_lines)
    filters = {name: value for name, value in filters.items() if value not in (None, ())}
    columns = COLUMNS_V2 if filters else COLUMNS
    with _connect(options) as client:
        found: Iterable[Order] = filtered(client.v2.iter_orders, **filters) if filters else client.iter_orders()
        output.write_orders(found, columns)


@orders.command("get", context_settings={"ignore_unknown_options": True})
@IDS
@JSON
@JSONL
@click.pass_context
def get_orders(ctx: click.Context, order_ids: tuple[str, ...], as_json: bool, as_lines: bool) -> None:
    """Show orders with their status. With - the IDs are read from stdin, one per line.

    \b
    Example:
      petstore-client orders get 42 43 --json
    """
    output = Output(as_json, as_lines)
    codes: list[int] = []
    with _connect(ctx.obj) as client:
        found = console.each(client.v2.get_order, _order_ids(order_ids), codes, output.in_json)
        output.write_orders((order for _, order in found), COLUMNS_V2)
    ctx.exit(codes[0] if codes else 0)


@orders.command("cancel", context_settings={"ignore_unknown_options": True})
@IDS
@JSON
@JSONL
@click.pass_context
def cancel_orders(ctx: click.Context, order_ids: tuple[str, ...], as_json: bool, as_lines: bool) -> None:
    """Cancel pending orders.

    Each ID is tried, unless the key or an option stops them all; the exit code is that of the first failure.
    With - the IDs are read from stdin, one per line, and checked before the first order is cancelled. Ctrl-C
    and SIGTERM end the command; what was cancelled until then is printed. If only stderr is a terminal, it
    shows the progress.

    \b
    Examples:
      petstore-client orders cancel 42 43
      petstore-client orders cancel - --jsonl < ids.txt
    """
    output = Output(as_json, as_lines)
    numbers = _order_ids(order_ids)
    codes: list[int] = []
    hidden = sys.stdout.isatty() or not sys.stderr.isatty()
    with _connect(ctx.obj) as client, click.progressbar(numbers, file=sys.stderr, hidden=hidden) as progress:
        try:
            for number, _ in console.each(client.cancel_order, progress, codes, output.in_json, CANCELLED):
                output.write({"id": number, "cancelled": True}, f"order {number}: cancelled\n")
                sys.stdout.flush()
        finally:
            output.close()  # whatever ends the command, the list of what was done is valid JSON
    ctx.exit(codes[0] if codes else 0)


@orders.command("place")
@click.option("--pet-id", type=INTEGER, required=True, metavar="ID", help="The pet.")
@click.option("--quantity", type=click.IntRange(1, 2**63 - 1), required=True, metavar="N", help="How many.")
@click.option("--ship-date", callback=timestamp, metavar="WHEN", help="When the order should ship.")
@click.option("--reference", metavar="TEXT", help="Your own number of the order.")
@click.option("--idempotency-key", metavar="KEY", help="That of an earlier attempt, which may have placed the order.")
@JSON
@JSONL
@click.pass_obj
def place_order(options: dict[str, Any], /, as_json: bool, as_lines: bool, **order: Any) -> None:
    """Place an order, once.

    The key needs the scope orders:write. If the order may have been placed although the command failed, the
    message has the idempotency key with which to run it again.

    \b
    Example:
      petstore-client orders place --pet-id 7 --quantity 2 --reference PO-1042
    """
    output = Output(as_json, as_lines)
    if order["idempotency_key"] is None:
        order["idempotency_key"] = uuid.uuid4().hex
    try:
        with _connect(options) as client:
            output.write_orders([client.v2.place_order(**order)], COLUMNS_V2)
        sys.stdout.flush()
    except (OSError, KeyboardInterrupt) as error:  # the order may have been placed, but not printed
        errors.keep_key(error, order["idempotency_key"])
        raise


@orders.command("watch")
@click.option("--after", metavar="TOKEN", help="Token to begin after, or 'now'; default: the beginning.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="File that keeps the token.")
@click.pass_obj
def watch_orders(options: dict[str, Any], after: str | None, state: Path | None) -> None:
    """Print every order, and then each that changes, as lines of JSON, until the command is ended.

    With --state the command goes on where it ended; --after has an effect only until the file exists.
    If it was killed, the last orders may come again. If the store was restored, or the account now sees
    other orders, it exits with 1: remove the file, and begin with an empty copy.

    \b
    Example:
      petstore-client orders watch --state position
    """
    output = Output(as_json=False, as_lines=True)
    token = _token(state) if state and state.exists() else after
    with _connect(options) as client:
        if state and token == "now":  # noqa: S105 - not a secret
            token = client.v2.list_changes(after=token).next
            _keep(token, state)  # so that the command goes on here even if it ends before anything changes
        threading.Thread(target=console.close_with_stdout, args=[client.close], daemon=True).start()
        for page in client.v2.follow_changes(after=token or None):
            for order in page.data:
                output.write(order)
            sys.stdout.flush()
            if state:
                _keep(page.next, state)
    raise BrokenPipeError  # which was the only reason to close the client


def _token(state: Path) -> str:
    """The token in the file of `--state`, empty if the file is. Raises BadParameter for anything else."""
    if state.is_file():
        with state.open("rb") as file:
            if found := _TOKEN.fullmatch(file.read(1000)):
                return found[1].decode()
    raise click.BadParameter(f"{state} is not a file with a token; choose another name.", param_hint="'--state'")


def _keep(token: str, state: Path) -> None:
    """Write the token to the file of `--state`."""
    new = state.with_name(f"{state.name}.new")
    new.unlink(missing_ok=True)
    with new.open("x") as file:  # which does not follow a link that another user has put there
        file.write(f"{token}\n")
    new.replace(state)


@petstore_client.command()
@click.option("--by", type=click.Choice(["hour", "day"]), default="hour", help="The length of an entry (hour).")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object; errors are JSON on stderr.")
@click.pass_obj
def usage(options: dict[str, Any], by: Granularity, as_json: bool) -> None:
    """Show the plan, the key, the limits, and the requests of the last 24 hours.

    \b
    Example:
      petstore-client usage --by day
    """
    with _connect(options) as client:
        found = client.v2.get_usage(granularity=by)
    Output(as_json=False, as_lines=as_json).write(found, usage_text(found))


def _connect(options: dict[str, Any]) -> "api.Client":
    """A client. Raises ConfigurationError, which names the options of this command."""
    base_url: str | None = options["base_url"]
    if not (os.environ.get("PETSTORE_BASE_URL") if base_url is None else base_url):
        raise errors.ConfigurationError("There is no base URL: give --base-url, or set PETSTORE_BASE_URL.")
    if not os.environ.get("PETSTORE_API_KEY"):
        raise errors.ConfigurationError("There is no API key: set PETSTORE_API_KEY.")
    return api.Client(**options, retry_timeout=console.RETRY_TIMEOUT)


def _order_ids(given: tuple[str, ...]) -> list[int]:
    """The identifiers that were given, or for `-` those on stdin, one per line; empty lines are skipped."""
    if given != ("-",):
        return [_order_id(text) for text in given]
    if sys.stdin.isatty():
        say("Enter one order identifier per line; end with Ctrl-D.")
    text = sys.stdin.buffer.read().decode("utf-8-sig", "backslashreplace")
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    return [_order_id(line, f"line {number}: ") for number, line in lines if line]


def _order_id(text: str, where: str = "") -> int:
    """An order identifier: a whole number of at most 64 bits in plain digits (D4)."""
    if not _ORDER_ID.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise click.UsageError(f"{where}'{text}' is not an order identifier: a 64-bit integer without leading zeros.")
    return int(text)


def _report_retry(event: RetryEvent) -> None:
    if not isinstance(event.error, errors.RateLimitError):  # `_report_limit` has reported the wait
        say(f"petstore-client: {event.error} Retrying in {event.wait:.0f} s.")


def _report_limit(event: RateLimitEvent) -> None:
    if event.waits:
        until = event.retry_at.astimezone().strftime("%H:%M:%S")
        say(f"petstore-client: The limit is used up; continuing at {until}.")
