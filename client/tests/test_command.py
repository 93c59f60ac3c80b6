"""The command `petstore-client`: stdout, stderr and exit codes."""

import errno
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

import petstore_client
from petstore_client import Clock, Order, v2
from petstore_client._types import SYSTEM_CLOCK
from petstore_client.cli import command, console
from petstore_client.testing import Answered, Banned, CutOff, Dropped, Failing, FakePetstore, RateLimited, Unreachable
from petstore_client.testing.faults import Fault, Raw, Serve
from testing.client_variants import faulty
from testing.served_fake import served
from testing.subprocesses import PATIENCE, within

ORDERS = [
    Order(id=-(2**63)),
    Order(id=1, pet_id=7, quantity=2, ship_date=datetime(2026, 11, 20, 12, 0, tzinfo=UTC), complete=False),
    Order(id=2**63 - 1, complete=True),
]
RECORDS = [
    {"id": -(2**63)},
    {"id": 1, "petId": 7, "quantity": 2, "shipDate": "2026-11-20T12:00:00Z", "complete": False},
    {"id": 2**63 - 1, "complete": True},
]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(name="run")
def _run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command against a fake service."""

    def run(fake: FakePetstore, *arguments: str) -> Done:
        def client(**options: Any) -> Any:
            return fake.client(**{name: value for name, value in options.items() if value is not None})

        monkeypatch.setattr(petstore_client, "Client", client)
        monkeypatch.setenv("PETSTORE_BASE_URL", "https://api.example.com/v1")
        monkeypatch.setenv("PETSTORE_API_KEY", "key")
        return to_its_end(arguments, capsys)

    return run


def to_its_end(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> Done:
    with pytest.raises(SystemExit) as caught:
        console.run(command.petstore_client, arguments)
    return Done(int(caught.value.code or 0), *capsys.readouterr())


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int = 200, terminal: bool = True) -> None:
    """Make stdout a terminal of that width, or not a terminal."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)


def test_a_list_in_a_pipe_is_columns_with_one_header(run: Run) -> None:
    done = run(FakePetstore(ORDERS), "orders", "list")
    assert (0, "") == (done.code, done.err)
    lines = [line.split() for line in done.out.splitlines()]
    assert ["ID", "PET", "QUANTITY", "SHIP", "DATE", "COMPLETE"] == lines[0]
    assert ["1", "7", "2", "2026-11-20T12:00:00Z", "false"] == lines[2]
    assert [str(-(2**63)), "-", "-", "-", "-"] == lines[1]
    assert 4 == len(lines)


def test_a_list_on_a_terminal_is_one_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    many = [Order(id=number) for number in range(1, 1201)]
    done = run(FakePetstore([*ORDERS, *many]), "orders", "list")
    assert 0 == done.code
    assert 1 == done.out.count("QUANTITY")
    assert "1202 orders" in done.out


TYPICAL = v2.Order(
    id=12345,
    pet_id=7,
    quantity=2,
    ship_date=datetime(2026, 11, 20, 12, 0, tzinfo=UTC),
    complete=False,
    status="pending",
    created_at=datetime(2026, 11, 2, 9, 0, tzinfo=UTC),
    updated_at=datetime(2026, 11, 2, 9, 59, 59, 123456, UTC),
)


@pytest.mark.parametrize(("width", "sort"), [(80, []), (80, ["--sort", "id"]), (60, [])])
def test_typical_orders_are_a_table(run: Run, monkeypatch: pytest.MonkeyPatch, width: int, sort: list[str]) -> None:
    on_terminal(monkeypatch, width)
    done = run(FakePetstore([TYPICAL]), "orders", "list", *sort)
    heading, row, count = done.out.splitlines()
    assert heading.split()[:3] == ["ID", "PET", "QUANTITY"]
    assert row.split()[:3] == ["12345", "7", "2"]
    assert "2026-11-20" in row
    assert ("2026-11-02 09:59" in row) is bool(sort)
    assert "1 order" == count
    assert max(map(len, done.out.splitlines())) <= width


@pytest.mark.parametrize("sort", [[], ["--sort", "id"]], ids=str)
@pytest.mark.parametrize("width", [80, 40])
def test_where_a_table_is_too_wide_every_field_has_a_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int, sort: list[str]
) -> None:
    on_terminal(monkeypatch, width)
    date = datetime(2026, 11, 20, 12, 0, 0, 123456, UTC)
    orders = [Order(id=-(2**63), pet_id=2**63 - 1, quantity=2**63 - 1, ship_date=date, complete=True), Order(id=1)]
    done = run(FakePetstore(orders), "orders", "list", *sort)
    assert max(map(len, done.out.splitlines())) <= width
    first, second, count = done.out.split("\n\n")
    assert [
        "ID        -9223372036854775808",
        "PET       9223372036854775807",
        "QUANTITY  9223372036854775807",
        "SHIP DATE 2026-11-20T12:00:00.123456Z",
        "COMPLETE  true",
    ] == first.splitlines()[:5]
    assert ["STATUS    pending", "UPDATED   2027-01-15T08:00:00Z"] * bool(sort) == first.splitlines()[5:]
    assert "ID        1" == second.splitlines()[0]
    assert "2 orders\n" == count


@pytest.mark.parametrize("arguments", [[], ["orders"]], ids=str)
def test_without_a_command_the_help_is_shown(run: Run, arguments: list[str]) -> None:
    done = run(FakePetstore(), *arguments)
    assert (2, "") == (done.code, done.out)
    assert "Usage: petstore-client" in done.err.splitlines()[0]
    assert "Commands:" in done.err.splitlines()
    asked = [run(FakePetstore(), *arguments, option).out for option in ("-h", "--help")]
    assert [done.err] * 2 == asked


def test_a_ship_date_out_of_range_in_utc_is_shown_with_its_offset(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    dates = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
    body = json.dumps([{"id": number, "shipDate": date} for number, date in enumerate(dates)]).encode()
    for terminal in (False, True):
        on_terminal(monkeypatch, terminal=terminal)
        done = run(faulty([], Answered(200, body, {"content-type": "application/json"})), "orders", "list")
        assert 0 == done.code
        assert all(date in done.out for date in dates)


@pytest.mark.parametrize(("orders", "records"), [(ORDERS, RECORDS), ([], [])], ids=["orders", "none"])
def test_json_is_one_array_and_jsonl_one_line_per_order(run: Run, orders: list[Order], records: list[object]) -> None:
    fake = FakePetstore(orders)
    assert records == json.loads(run(fake, "orders", "list", "--json").out)
    lines = run(fake, "orders", "list", "--jsonl").out.splitlines()
    assert records == [json.loads(line) for line in lines]
    assert 1 + len(records) == len(run(fake, "orders", "list").out.splitlines())  # with the heading of the columns


T0 = datetime(2026, 11, 1, tzinfo=UTC)
V2_ORDERS = [
    Order(id=1, pet_id=7, complete=True),
    Order(id=2, pet_id=7, ship_date=datetime(2026, 11, 20, 12, 0, tzinfo=UTC)),
    Order(id=3, pet_id=7),
    Order(id=4, pet_id=8),
]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--status", "pending"], [1, 3, 4]),
        (["--status", "pending", "--status", "shipped", "--pet-id", "7"], [1, 2, 3]),
        (["--complete"], [1]),
        (["--complete", "true", "--pet-id", "8"], []),
        (["--complete=false"], [2, 3, 4]),
        (["--ship-date-from", "2026-11-20T13:00:00+01:00"], [2]),
        (["--ship-date-to", "2026-11-20T12:00:00z"], []),
        (["--updated-from", "2027-01-15T08:00:00.000001Z"], []),
        (["--sort", "-id"], [4, 3, 2, 1]),
        (["--sort=-id", "--limit", "2"], [4, 3]),
        (["--limit", "2000"], [1, 2, 3, 4]),
        (["--limit", str(2**64)], [1, 2, 3, 4]),
        (["--reference", "A"], [5]),
        (["--reference", "A", "--reference", "B"], [5, 6]),
    ],
    ids=str,
)
def test_filters_use_version_2(run: Run, options: list[str], ids: list[int]) -> None:
    named = [v2.Order(id=5 + n, status="pending", created_at=T0, updated_at=T0, reference="AB"[n]) for n in range(2)]
    fake = FakePetstore([*V2_ORDERS, *(named if "--reference" in options else ())], shipped=[2], work_limit=2)
    done = run(fake, "orders", "list", *options, "--jsonl")
    assert (0, "") == (done.code, done.err)
    records = [json.loads(line) for line in done.out.splitlines()]
    assert ids == [record["id"] for record in records]
    assert all(record["status"] in ("pending", "shipped") and record["updatedAt"] for record in records)
    assert {"v2"} == {request.version for request in fake.requests}


def test_a_limit_bounds_the_size_of_the_pages(run: Run) -> None:
    fake = FakePetstore([Order(id=number) for number in range(3000)])
    assert 5 == len(run(fake, "orders", "list", "--limit", "5", "--jsonl").out.splitlines())
    assert ["limit=5"] == [request.query for request in fake.requests]
    assert 1500 == len(run(fake, "orders", "list", "--limit", "1500", "--jsonl").out.splitlines())
    assert 3 == len(fake.requests)


def test_a_list_of_version_2_has_columns_for_status_and_change(run: Run) -> None:
    fake = FakePetstore(V2_ORDERS, shipped=[2])
    lines = [line.split() for line in run(fake, "orders", "list", "--pet-id", "7").out.splitlines()]
    assert ["ID", "PET", "QUANTITY", "SHIP", "DATE", "COMPLETE", "STATUS", "UPDATED"] == lines[0]
    assert ["2", "7", "-", "2026-11-20T12:00:00Z", "-", "shipped", "2027-01-15T08:00:00Z"] == lines[2]


SENT = {"id": 1, "createdAt": "2026-11-20T12:00:00Z", "updatedAt": "2026-11-20T12:00:00Z"}


@pytest.mark.parametrize("option", ["--json", "--jsonl"])
def test_json_is_in_utf_8_and_does_not_control_the_terminal(run: Run, option: str) -> None:
    sys.stdout.reconfigure(encoding="cp1252")  # type: ignore[union-attr]
    body = {"data": [{**SENT, "status": "\xe9 \x9b2J", "reference": "注\u202e\U000e0001"}]}
    done = run(faulty([], Answered(200, json.dumps(body).encode())), "orders", "list", "--limit", "1", option)
    assert r'"é \u009b2J"' in done.out
    assert r'"注\u202e\udb40\udc01"' in done.out


def test_a_status_of_the_server_does_not_control_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.stdout.reconfigure(encoding="cp1252")  # type: ignore[union-attr]
    body = {"data": [{**SENT, "status": "a\x1b[2J[red]注"}]}
    for terminal in (False, True):
        on_terminal(monkeypatch, terminal=terminal)
        done = run(faulty([], Answered(200, json.dumps(body).encode())), "orders", "list", "--limit", "1")
        assert r"a\x1b[2J[red]\u6ce8" in done.out


FIRST, LAST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("ids", "faults", "code", "cancelled", "failures"),
    [
        ([1, 99, LAST, FIRST], [], 5, [1, FIRST], ["order_not_found", "order_already_shipped"]),
        ([LAST], [], 6, [], ["order_already_shipped"]),
        ([1, FIRST], [Failing(500)] * 5, 1, [FIRST], ["internal_error"]),
        ([1, FIRST], [Unreachable()] * 8, 0, [1, FIRST], []),
        ([1, FIRST], [Banned()], 1, [], ["api_key_banned"]),  # which affects all of them
    ],
    ids=str,
)
def test_each_order_is_cancelled_and_the_first_failure_is_the_exit_code(
    run: Run, ids: list[int], faults: list[Fault], code: int, cancelled: list[int], failures: list[str]
) -> None:
    fake = faulty(ORDERS, *faults, shipped=[LAST])
    done = run(fake, "orders", "cancel", *map(str, ids), "--jsonl")
    assert (code, set(cancelled)) == (done.code, fake.cancelled)
    assert cancelled == [json.loads(line)["id"] for line in done.out.splitlines()]
    assert failures == [json.loads(line)["code"] for line in done.err.splitlines() if line[0] == "{"]


def test_lines_are_flushed_as_they_come(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePetstore([Order(id=1), Order(id=2)])
    seen: list[tuple[str, int]] = []
    written = io.StringIO()
    monkeypatch.setattr(sys.stdout, "write", written.write)
    monkeypatch.setattr(sys.stdout, "flush", lambda: seen.append((written.getvalue(), len(fake.cancelled))))
    run(fake, "orders", "cancel", "1", "2", "--jsonl")
    first, second = '{"id":1,"cancelled":true}\n', '{"id":2,"cancelled":true}\n'
    assert [(first, 1), (first + second, 2)] == [each for each in seen if each[0]][:2]


@pytest.mark.parametrize(
    ("text", "ids"), [("1\n2\n", [1, 2]), ("\ufeff1\r\n\r\n 2 \r\n", [1, 2]), ("1\n2", [1, 2]), ("\n", [])]
)
def test_ids_are_read_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch, text: str, ids: list[int]) -> None:
    fake = FakePetstore([Order(id=1), Order(id=2)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    done = run(fake, "orders", "cancel", "-", "--json")
    assert (0, "") == (done.code, done.err)
    assert [{"id": number, "cancelled": True} for number in ids] == json.loads(done.out)


def test_a_wrong_id_on_stdin_names_its_line_and_nothing_is_cancelled(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePetstore([Order(id=1)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n\nx\xff\x1b[2J\n")))
    done = run(fake, "orders", "cancel", "-")
    assert (2, "") == (done.code, done.out)
    assert r"line 3: 'x\xff\x1b[2J' is not an order identifier" in done.err
    assert [] == fake.requests


HOSTILE = "No.\x1b[2J\x9b31m\nfake line"


@pytest.mark.parametrize("options", [[], ["--json"], ["--jsonl"]], ids=str)
@pytest.mark.parametrize("before", [[], ["--verbose"]], ids=str)
def test_control_characters_of_the_server_do_not_reach_the_terminal(
    run: Run, options: list[str], before: list[str]
) -> None:
    fake = FakePetstore([Order(id=1)])
    for status in (500, 409):
        body = json.dumps({"code": "x", "message": HOSTILE, "status": status}).encode()
        fake.then(Answered(status, body))
    done = run(fake, *before, "orders", "cancel", "1", *options)
    assert 6 == done.code
    assert all(line.isprintable() for line in done.err.splitlines())
    assert HOSTILE.encode().partition(b"\n")[0] not in done.err.encode()
    last = done.err.splitlines()[-1]
    assert (HOSTILE == json.loads(last)["message"]) if options else (r"No.\x1b[2J\x9b31m\nfake line" in last)


@pytest.mark.parametrize(
    ("arguments", "fault", "says"),
    [
        ("orders list", [Failing(503)] * 5, "--max-retries allows no further attempt."),
        ("--max-retries 1 orders list", [Failing(503)] * 2, "--max-retries allows no further attempt."),
        ("--max-retries 0 orders list", [Unreachable()], "--max-retries allows no further attempt."),
        ("orders list", [Unreachable()] * 100, "Gave up after 120 seconds."),
        ("--max-wait 1 orders list", [RateLimited(5)], "The necessary wait is longer than --max-wait."),
        ("--deadline 2 orders list", [Failing(503, retry_after=3)], "--deadline leaves no time for another attempt."),
        ("orders cancel 1", [Dropped()] * 5, "The order may have been cancelled: run the command again."),
    ],
)
def test_a_failure_names_the_option_of_the_command_that_ended_it(
    run: Run, arguments: str, fault: list[Fault], says: str
) -> None:
    done = run(faulty(ORDERS, *fault), *arguments.split())
    assert (1, True) == (done.code, done.err.endswith(f" {says}\n")), done.err


def test_a_limit_that_is_used_up_names_the_option_to_raise(run: Run) -> None:
    fake = FakePetstore(ORDERS, per_minute=1)
    done = run(fake, "--max-wait", "1", "orders", "cancel", "1", "2")
    assert "raise --max-wait" in done.err


class Interrupted:
    """The request arrives, and Ctrl-C is pressed before the response does."""

    def apply(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        serve()
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("list", "Interrupted."),
        ("cancel 1", "Interrupted. Order 1 may have been cancelled: run the command again."),
        (
            "place --pet-id 7 --quantity 2 --idempotency-key a$b",
            "Interrupted. The order may have been placed: run the command again with --idempotency-key 'a$b'.",
        ),
    ],
)
def test_an_interrupted_change_says_that_it_may_have_been_made_and_how_to_repeat_it(
    run: Run, arguments: str, says: str
) -> None:
    fake = faulty(ORDERS, Interrupted())
    done = run(fake, "orders", *arguments.split())
    assert (130, f"petstore-client: {says}") == (done.code, done.err.strip())


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(name="start")
def _start() -> Iterator[Start]:
    """Starts the command as a process, with a fake service behind a socket."""
    with ExitStack() as stack:

        def start(fake: FakePetstore, *arguments: str) -> "subprocess.Popen[str]":
            environ = {"PETSTORE_BASE_URL": stack.enter_context(served(fake)), "PETSTORE_API_KEY": fake.api_key}
            command = [sys.executable, "-m", "petstore_client", "orders", *arguments]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=pipe, stderr=pipe, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@pytest.mark.parametrize(
    ("number", "option"), [(signal.SIGTERM, ["--json"]), (signal.SIGHUP, ["--jsonl"]), (signal.SIGINT, [])], ids=str
)
def test_a_signal_keeps_the_list_of_what_was_done(start: Start, number: signal.Signals, option: list[str]) -> None:
    fake = FakePetstore([Order(id=number) for number in range(9)], per_minute=3, clock=SYSTEM_CLOCK)
    process = start(fake, "cancel", *map(str, range(9)), *option)
    assert process.stderr
    assert "The limit is used up" in process.stderr.readline()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert 128 + number == process.returncode
    assert {0, 1, 2} == fake.cancelled
    done = [{"id": number, "cancelled": True} for number in range(3)]
    assert {
        "[]": "".join(f"order {number}: cancelled\n" for number in range(3)),
        "['--json']": json.dumps(done, separators=(",", ":")).replace("},", "},\n") + "\n",
        "['--jsonl']": "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in done),
    }[str(option)] == out
    assert "Interrupted. Order 3 may have been cancelled: run the command again." in err


def test_waits_and_retries_are_reported_on_stderr(run: Run) -> None:
    fake = faulty(ORDERS, RateLimited(5), Failing(503, retry_after=3))
    done = run(fake, "orders", "list", "--jsonl")
    assert (0, 3) == (done.code, len(done.out.splitlines()))
    assert "The limit is used up; continuing at" in done.err
    assert "Retrying in 3 s." in done.err
    assert 2 == len(done.err.splitlines())


@pytest.mark.parametrize(
    ("fault", "time", "option"), [(RateLimited(3600), "09:00:00", "--max-wait"), (Banned(120), "08:02:00", "")]
)
def test_a_refusal_says_when_to_retry(run: Run, fault: Fault, time: str, option: str) -> None:
    done = run(faulty(ORDERS, fault), "orders", "list")
    assert (1, "") == (done.code, done.out)
    assert f" Retry at 2027-01-15T{time}+00:00." in done.err
    assert option in done.err


def test_a_truncated_list_fails_with_one_line_and_is_visibly_incomplete(run: Run) -> None:
    fake = faulty([Order(id=number) for number in range(500)], CutOff(2000), CutOff(2000))
    with pytest.raises(json.JSONDecodeError):
        json.loads(run(fake, "orders", "list", "--json").out)
    done = run(fake, "orders", "list", "--jsonl")
    assert 1 == done.code
    assert "invalid_response_error" == json.loads(done.err)["code"]
    assert 0 < len(done.out.splitlines()) < 500


NOT_AN_ID = "is not an order identifier: a 64-bit integer without leading zeros."
NOT_A_TIME = "is not an RFC 3339 date-time with an offset, such as 2026-11-01T10:00:00Z."
PLACE = "orders place --pet-id 1 --quantity 1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("nonsense", "No such command 'nonsense'."),
        ("orders cancel", "Missing argument 'ID...|-'."),
        ("orders cancel 1 -", f"'-' {NOT_AN_ID}"),
        *((f"orders cancel {text}", f"'{text}' {NOT_AN_ID}") for text in ("007", "1.0", "abc", 2**63)),
        ("orders get 007", f"'007' {NOT_AN_ID}"),
        ("orders list --json --jsonl", "--json and --jsonl cannot be combined."),
        ("orders list --complete maybe", "'maybe' is not one of 'true', 'false'."),
        ("orders list --status lost", "'lost' is not one of 'pending', 'shipped', 'cancelled'."),
        ("orders list --limit 0", "0 is not in the range x>=1."),
        *(
            (f"orders list --updated-from {text}", f"'{text}' {NOT_A_TIME}")
            for text in ("2026-11-20T12:00:00", "2026-13-20T12:00:00Z", "2026-11-20T12:00:00+00:60")
        ),
        ("orders place --pet-id 1", "Missing option '--quantity'."),
        ("orders place --pet-id 1 --quantity 0", "0 is not in the range 1<=x<=9223372036854775807."),
        (f"{PLACE} --ship-date tomorrow", f"'tomorrow' {NOT_A_TIME}"),
        (f"{PLACE} --idempotency-key 'two words'", "must be 1 to 255 visible ASCII characters, without spaces."),
        (f"{PLACE} --reference \udcff", "Decode its bytes as they were encoded."),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_2_says_what_is_wrong_and_sends_nothing(run: Run, arguments: str, says: str) -> None:
    fake = FakePetstore(ORDERS)
    done = run(fake, *shlex.split(arguments))
    assert (2, "", 1, []) == (done.code, done.out, len(done.err.splitlines()), fake.requests)
    assert says in done.err


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python without settings of the client."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PETSTORE_")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=own, capture_output=True, text=True, check=False)


BASE_URL = {"PETSTORE_BASE_URL": "https://api.example.com/v1"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "There is no base URL: give --base-url, or set PETSTORE_BASE_URL."),
        ({"PETSTORE_BASE_URL": ""}, "There is no base URL: give --base-url, or set PETSTORE_BASE_URL."),
        (BASE_URL, "There is no API key: set PETSTORE_API_KEY."),
        ({**BASE_URL, "PETSTORE_API_KEY": " key"}, "The API key has space or a line break around it; copy it again."),
    ],
)
def test_without_settings_it_says_what_to_set(
    settings: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PETSTORE_BASE_URL", "PETSTORE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert (2, "", f"petstore-client: {says}\n") == to_its_end(["orders", "list"], capsys)


def test_without_the_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; from petstore_client.cli import main; main()"
    done = python("-c", code)
    assert (1, "petstore-client: the command needs click: pip install 'click>=8.2'\n") == (done.returncode, done.stderr)


RUNNING = """
import weakref
from petstore_client.cli import console

class Object: pass

def run(*_):
    held = Object()
    reference = weakref.ref(held, ctrl_c)
    del held  # in the callback, and then where nothing handles it
    ctrl_c()

console.run = run
"""
LOADING = """
from sys import meta_path
from types import SimpleNamespace
meta_path.insert(0, SimpleNamespace(find_spec=ctrl_c))
"""


@pytest.mark.parametrize("arrives", [RUNNING, LOADING], ids=["running", "loading"])
def test_ctrl_c_shows_no_traceback_wherever_it_arrives(arrives: str) -> None:
    define = "from petstore_client.cli import main\ndef ctrl_c(*_): raise KeyboardInterrupt\n"
    done = python("-c", f"{define}{arrives}main()")
    assert (130, "") == (done.returncode, done.stderr)


def test_orders_are_shown_with_their_status(run: Run) -> None:
    fake = FakePetstore(V2_ORDERS, shipped=[2])
    done = run(fake, "orders", "get", "2", "1")
    assert (0, "") == (done.code, done.err)
    assert ["shipped", "pending"] == [line.split()[5] for line in done.out.splitlines()[1:]]
    assert [1, 3] == [order["id"] for order in json.loads(run(fake, "orders", "get", "1", "3", "--json").out)]


def test_the_first_failure_of_get_is_the_exit_code_and_the_others_are_shown(run: Run) -> None:
    done = run(FakePetstore(V2_ORDERS), "orders", "get", "1", "99", "2", "--jsonl")
    assert (5, [1, 2]) == (done.code, [json.loads(line)["id"] for line in done.out.splitlines()])
    assert ("order_not_found", 99) == (json.loads(done.err)["code"], json.loads(done.err)["id"])


def test_an_order_is_placed(run: Run) -> None:
    fake = FakePetstore()
    arguments = ["--pet-id", "7", "--quantity", "2", "--reference", "PO 17", "--ship-date", "2026-12-01T10:00:00+01:00"]
    done = run(fake, "orders", "place", *arguments, "--idempotency-key", "k", "--json")
    (placed,) = json.loads(done.out)
    assert (0, "PO 17", "2026-12-01T09:00:00Z") == (done.code, placed["reference"], placed["shipDate"])
    again = run(fake, "orders", "place", *arguments, "--idempotency-key", "k", "--json")
    assert ([placed], 1) == (json.loads(again.out), len(fake.orders))
    assert "pending" in run(fake, "orders", "place", *arguments[:4]).out.splitlines()[1]
    assert 2 == len(fake.orders)
    refused = run(fake, "orders", "place", *arguments, "--json")
    assert (6, "reference_in_use", placed["id"]) == (refused.code, *map(json.loads(refused.err).get, ("code", "id")))


def test_a_placement_that_may_have_been_applied_says_with_which_key_to_repeat_it(run: Run) -> None:
    fake = faulty([], *[Dropped()] * 5)
    arguments = ["orders", "place", "--pet-id", "7", "--quantity", "2"]
    done = run(fake, *arguments)
    assert 1 == done.code
    says, _, key = done.err.strip().rpartition(" ")
    assert says.endswith("The order may have been placed: run the command again with --idempotency-key")
    assert 0 == run(fake, *arguments, "--idempotency-key", key.rstrip(".")).code
    assert 1 == len(fake.orders)


def test_a_placed_order_that_cannot_be_printed_says_with_which_key_to_repeat_the_command(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fake = FakePetstore()
    arguments = ["orders", "place", "--pet-id", "7", "--quantity", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "writelines", full)
        done = run(fake, *arguments)
    says, _, key = done.err.strip().rpartition(" ")
    assert (1, "No space left on device. The order") == (done.code, says[len("petstore-client: ") :][:34])
    assert says.endswith("may have been placed: run the command again with --idempotency-key")
    assert 0 == run(fake, *arguments, "--idempotency-key", key.rstrip(".")).code
    assert 1 == len(fake.orders)


@pytest.mark.parametrize(("arguments", "code"), [("bogus", 2), ("orders get 1 2", 5), ("--verbose orders cancel 1", 0)])
@pytest.mark.parametrize("reader", ["gone", "full"])
def test_messages_that_cannot_be_written_change_no_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: str, code: int, reader: str
) -> None:
    def fail(_: object) -> None:
        raise BrokenPipeError if reader == "gone" else OSError(errno.ENOSPC, "No space left on device")

    fake = FakePetstore([Order(id=1)])
    with monkeypatch.context() as patch:
        patch.setattr(sys.stderr, "write", fail)
        assert code == run(fake, *arguments.split()).code
    assert fake.cancelled == ({1} if code == 0 else set())


def change(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next line that the process writes."""
    assert process.stdout
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def test_changes_are_printed_and_the_token_is_remembered(start: Start, tmp_path: Path) -> None:
    state = tmp_path / "position"
    fake = FakePetstore([Order(id=1), Order(id=2)], clock=SYSTEM_CLOCK)
    first = start(fake, "watch", "--state", str(state))
    assert [1, 2] == [change(first)["id"] for _ in range(2)]
    within(PATIENCE, state.exists)
    fake.cancelled.add(2)
    before = state.read_text()
    assert {"id": 2, "status": "cancelled"}.items() <= change(first).items()
    within(PATIENCE, lambda: state.read_text() != before)  # it is written after the line
    first.send_signal(signal.SIGINT)
    assert 130 == first.wait(60)
    fake.shipped.add(1)
    before = state.read_text()
    second = start(fake, "watch", "--state", str(state), "--after", "ignored")
    assert {"id": 1, "status": "shipped"}.items() <= change(second).items()
    within(PATIENCE, lambda: state.read_text() != before)  # it replaces the file after the line
    assert [state.name] == [path.name for path in tmp_path.iterdir()]


def test_a_watch_from_now_on_that_was_killed_before_anything_changed_goes_on_there(
    start: Start, tmp_path: Path
) -> None:
    state = tmp_path / "position"
    fake = FakePetstore([Order(id=1), Order(id=2)], clock=SYSTEM_CLOCK)
    from_now_on = "watch", "--after", "now", "--state", str(state)
    first = start(fake, *from_now_on)
    within(PATIENCE, state.exists)
    first.kill()
    first.wait(60)
    fake.cancelled.add(2)
    assert {"id": 2, "status": "cancelled"}.items() <= change(start(fake, *from_now_on)).items()


def test_a_reader_that_goes_away_ends_a_watch_that_waits(start: Start) -> None:
    following = start(FakePetstore([Order(id=1)], clock=SYSTEM_CLOCK), "watch")
    assert 1 == change(following)["id"]
    assert following.stdout
    following.stdout.close()
    assert 141 == following.wait(60)
    assert following.stderr
    assert "" == following.stderr.read()


def test_after_a_restore_a_watch_says_so(run: Run, tmp_path: Path) -> None:
    fake = FakePetstore([Order(id=1)])
    state = tmp_path / "position"
    state.write_text("1_0_5_1\n")
    fake.restore()
    done = run(fake, "orders", "watch", "--state", str(state))
    assert (1, "", "changes_reset") == (done.code, done.out, json.loads(done.err)["code"])
    assert "1_0_5_1\n" == state.read_text()


@pytest.mark.parametrize("name", ["position", "position.new"])
def test_the_token_is_not_written_through_a_link(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").touch()
    (tmp_path / name).symlink_to(tmp_path / "victim")
    following = start(FakePetstore([Order(id=1)], clock=SYSTEM_CLOCK), "watch", "--state", str(tmp_path / "position"))
    assert 1 == change(following)["id"]
    within(PATIENCE, lambda: (tmp_path / "position").exists() and (tmp_path / "position").read_text() != "")
    assert ("", False) == ((tmp_path / "victim").read_text(), (tmp_path / "position").is_symlink())
    assert {"position", "victim"} == {path.name for path in tmp_path.iterdir()}


def test_a_token_is_not_remembered_before_its_page_was_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise BrokenPipeError

    state = tmp_path / "position"
    monkeypatch.setattr(sys.stdout, "write", broken)
    assert 141 == run(FakePetstore([Order(id=1)]), "orders", "watch", "--state", str(state)).code
    assert not state.exists()


def test_a_position_that_cannot_be_stored_is_named(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "missing" / "position"
    done = run(FakePetstore([Order(id=1)]), "orders", "watch", "--state", str(state))
    message = f"No such file or directory: {state}.new."
    assert (1, {"code": "io_error", "message": message}) == (done.code, json.loads(done.err))


@pytest.mark.parametrize("content", [b"\xff", b"1_0_5_1\n1_0_6_1\n", b"1 2", b"a" * 257, b"\0" * 2000, None])
def test_a_position_is_neither_read_from_nor_written_to_what_is_not_a_file_with_a_token(
    run: Run, tmp_path: Path, content: bytes | None
) -> None:
    state = tmp_path / "position"
    if content is None:
        os.mkfifo(state)  # as a device, it would be replaced; and reading it would wait
    else:
        state.write_bytes(content)
    fake = FakePetstore([Order(id=1)])
    done = run(fake, "orders", "watch", "--state", str(state))
    message = f"Invalid value for '--state': {state} is not a file with a token; choose another name."
    assert (2, "", {"code": "usage", "message": message}) == (done.code, done.out, json.loads(done.err))
    assert [] == fake.requests
    assert state.is_fifo() if content is None else content == state.read_bytes()


def test_usage_is_shown(run: Run) -> None:
    lines = run(FakePetstore(per_minute=60, per_day=1000), "usage").out.splitlines()
    key_line = "key     fake, orders:read orders:cancel orders:write pets:read"
    assert ["plan    enterprise", "orders  all", key_line, "minute  59 of 60 left until 2027-01-15 08:01Z"] == lines[:4]
    ban = {"began": "2026-11-20T12:00:00Z", "ended": "2026-11-20T12:02:00Z"}
    key = {"id": "k1", "scopes": ["orders:read"], "expiresAt": "2026-12-20T12:00:00Z", "lastBan": ban}
    entry = {"start": "2026-11-20T12:00:00Z", "admitted": 5, "refused": 1}
    body = json.dumps({"plan": "free", "key": key, "windows": [], "history": [entry]}).encode()
    fake = faulty([], *[Answered(200, body)] * 2)
    assert [
        "plan    free",
        "key     k1, orders:read, until 2026-12-20 12:00Z",
        "ban     until 2026-11-20 12:02Z",
        "FROM                 ADMITTED     REFUSED",
        "2026-11-20 12:00Z           5           1",
    ] == run(fake, "usage", "--by", "day").out.splitlines()
    assert json.loads(body) == json.loads(run(fake, "usage", "--json").out)


@pytest.mark.parametrize(("out", "err", "shown"), [(False, True, True), (True, True, False), (False, False, False)])
def test_a_long_cancel_shows_its_progress_on_stderr_if_only_that_is_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, out: bool, err: bool, shown: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: out)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: err)
    done = run(FakePetstore(V2_ORDERS), "orders", "cancel", "1", "2", "3")
    assert (0, "".join(f"order {number}: cancelled\n" for number in (1, 2, 3))) == (done.code, done.out)
    assert ("100%" in done.err) is shown
