"""The page for a shop's developers: its examples run in each language, and its program ends equal under kills."""

import json
import os
import random
import re
import runpy
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from petstore_client.testing import Answered, Dropped
from testing.client_variants import faulty
from testing.documents import SOURCE, block
from testing.foreign_examples import run_example
from testing.process import EVERY_SCOPE, UNLIMITED, Server, new_key, petstore, serving
from testing.served_fake import served
from testing.subprocesses import PATIENCE, free_port, within

PAGE = SOURCE / "api" / "guide" / "shop.md"
PROGRAM = block(PAGE, "shop program", "python")
TABLE = block(PAGE, "shop table", "sql")
EXAMPLES = [
    example
    for example in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    if example != PROGRAM
]
MAX_LINES = 60
ORDERS = 600
ROUNDS = 6
"""Rounds of a test, in each of which the shop changes rows and both sides are killed."""


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(name="environ")
def _environ(store: Path) -> Iterator[dict[str, str]]:
    """The variables that the page asks its reader to set, with a server."""
    assert 0 == petstore(store, "db", "migrate").returncode
    key, _ = new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)
    with serving(store) as server:
        yield _variables(f"{server.api}/v1", key)


def _variables(api: str, key: str) -> dict[str, str]:
    return {"API": api, "KEY": key, "PETSTORE_BASE_URL": api, "PETSTORE_API_KEY": key}


def test_every_example_in_python_runs(
    environ: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "example.py"
    for example in EXAMPLES:
        script.write_text(example)
        runpy.run_path(str(script), run_name="__main__")
    assert ("precondition_failed\norder_already_shipped\n[201, 200]\n", "") == capfd.readouterr()


PUT = {"javascript": 4001, "php": 5001}
"""The order that the example in a language puts."""

in_each_language = pytest.mark.parametrize("language", PUT)


@pytest.mark.system
@in_each_language
def test_the_example_in_another_language_runs_and_may_be_run_again(
    environ: dict[str, str], store: Path, tmp_path: Path, language: str
) -> None:
    first = run_example(PAGE, language, environ, tmp_path)
    assert (0, "200 shipped, 201 pending\n", "") == (first.returncode, first.stdout, first.stderr)
    shown = json.loads(petstore(store, "orders", "show", str(PUT[language]), "--json").stdout)
    assert ("shipped", 2, True) == (shown["status"], shown["quantity"], shown["complete"])
    again = run_example(PAGE, language, environ, tmp_path)
    assert 0 != again.returncode
    assert '409 {"code":"order_already_shipped",' in again.stderr  # putOrder: the order differs, and has shipped


@pytest.mark.system
@in_each_language
def test_the_example_in_another_language_sends_a_request_again_after_a_lost_response(
    tmp_path: Path, language: str
) -> None:
    body = b'{"id":%d,"status":"pending"}' % PUT[language]
    shipped = b'{"code":"order_already_shipped","message":"Order 1 has already shipped.","status":409}'
    results = b'{"results":[{"status":200,"order":{"status":"shipped"}}]}'
    answers = (Answered(201, body), Answered(200, body), Dropped(), Answered(409, shipped), Answered(200, results))
    fake = faulty([], *answers)
    with served(fake) as url:
        done = run_example(PAGE, language, {"API": url, "KEY": "pso_live_x"}, tmp_path)
    assert (0, "200 shipped\n", "") == (done.returncode, done.stdout, done.stderr)
    assert 5 == len(fake.requests)


@pytest.mark.system
@in_each_language
def test_the_example_in_another_language_shows_how_long_to_wait(tmp_path: Path, language: str) -> None:
    fake = faulty([], Answered(403, b"No entry", {"retry-after": "77"}))
    with served(fake) as url:
        done = run_example(PAGE, language, {"API": url, "KEY": "pso_live_x"}, tmp_path)
    assert 0 != done.returncode
    assert "403 No entry Retry-After: 77" in done.stderr + done.stdout


def test_the_program_is_short() -> None:
    assert len([line for line in PROGRAM.splitlines() if line]) <= MAX_LINES


class Shop:
    """A shop with the table of the page, and its warehouse, which change rows as the page says."""

    def __init__(self, file: Path, seed: int) -> None:
        self.file = file
        self.random = random.Random(seed)
        with self.table() as table:
            table.executescript(f"PRAGMA journal_mode = WAL; {TABLE}")

    @contextmanager
    def table(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.file, timeout=PATIENCE)) as connection, connection:
            yield connection

    def take(self, orders: range) -> None:
        """Take new orders; every seventh was shipped before it was ever sent."""
        with self.table() as table:
            for number in orders:
                table.execute(
                    "INSERT INTO orders(id, pet_id, quantity, ref) VALUES (?, 7, ?, ?)",
                    [number, 1 + number % 5, f"R-{number}"],
                )
            shipped = "status = 'shipped', ship_date = '2026-11-20T08:00:00Z'"
            table.execute(f"UPDATE orders SET {shipped} WHERE id >= ? AND id % 7 = 0", [orders.start])

    def change(self) -> None:
        """Ship, correct (also what has shipped) and cancel some orders."""
        changes = [
            ("status = 'shipped', ship_date = '2026-11-21T15:31:00Z'", "status = 'pending'", 35),
            ("quantity = quantity + 10", "status <> 'cancelled'", 30),
            ("status = 'cancelled'", "status = 'pending'", 5),
        ]
        with self.table() as table:
            for change, condition, number in changes:
                ids = [order for (order,) in table.execute(f"SELECT id FROM orders WHERE {condition}")]
                for order in self.random.sample(ids, min(number, len(ids))):
                    table.execute(
                        f"UPDATE orders SET {change}, version = version + 1 WHERE id = ? AND {condition}", [order]
                    )

    def unsent(self) -> int:
        with self.table() as table:
            return int(table.execute("SELECT count(*) FROM orders WHERE version > sent").fetchone()[0])

    def orders(self) -> dict[int, tuple[Any, ...]]:
        """Each order by its number; of a cancelled one only the status: it may have been cancelled before a change."""
        with self.table() as table:
            rows = table.execute("SELECT id, status, pet_id, quantity, ship_date, ref FROM orders").fetchall()
        return {number: (status, *fields) if status != "cancelled" else (status,) for number, status, *fields in rows}


def _stored(store: Path) -> dict[int, tuple[Any, ...]]:
    exported = petstore(store, "orders", "export", "-").stdout.splitlines()
    names = ("status", "petId", "quantity", "shipDate", "reference")
    found = {each["id"]: tuple(each.get(name) for name in names) for each in map(json.loads, exported)}
    return {number: fields if fields[0] != "cancelled" else fields[:1] for number, fields in found.items()}


@contextmanager
def _program(script: Path, shop: Path, environ: dict[str, str], errors: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The program of the page, killed at the end."""
    with errors.open("ab") as log:
        given = {**os.environ, **environ}
        with subprocess.Popen([sys.executable, str(script), str(shop)], env=given, stderr=log) as process:
            try:
                yield process
                assert process.poll() in (None, -signal.SIGKILL), errors.read_text()
            finally:
                process.kill()


def _cancel_some(server: Server, key: str, chosen: list[int]) -> None:
    """Cancel as a partner would; one that has shipped, or is not there yet, is refused."""
    with server.client(key) as client:
        for order in chosen:
            assert client.delete(f"/v1/store/orders/{order}").status_code in (204, 404, 409)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_program_ends_equal_although_it_and_the_server_are_killed(store: Path, tmp_path: Path, seed: int) -> None:
    shop = Shop(tmp_path / "shop.db", seed)
    script, errors, port = tmp_path / "shop.py", tmp_path / "errors.txt", free_port()
    script.write_text(PROGRAM)
    assert 0 == petstore(store, "db", "migrate").returncode
    scopes = [part for scope in ("manage", "read", "cancel") for part in ("--scope", f"orders:{scope}")]
    key, _ = new_key(store, "backend", UNLIMITED, scopes)
    partner, _ = new_key(store, "partner", UNLIMITED)
    environ = _variables(f"http://127.0.0.1:{port}/v1", key)
    for each in range(ROUNDS):
        with (
            serving(store, "--port", str(port)) as server,
            _program(script, shop.file, environ, errors) as program,
        ):
            shop.take(range(1 + each * ORDERS // ROUNDS, 1 + (each + 1) * ORDERS // ROUNDS))
            shop.change()
            time.sleep(shop.random.uniform(0.2, 0.8))
            _cancel_some(server, partner, shop.random.sample(range(1, ORDERS + 1), 10))
            if each % 2:  # the program first, otherwise the server
                program.kill()
            server.kill()
            time.sleep(shop.random.uniform(0, 0.5))
    with serving(store, "--port", str(port)), _program(script, shop.file, environ, errors):
        within(PATIENCE, lambda: not shop.unsent() and shop.orders() == _stored(store))
    assert ORDERS == len(shop.orders())
    assert {"pending", "shipped", "cancelled"} == {fields[0] for fields in shop.orders().values()}


def test_the_program_sends_everything_again_after_the_service_was_restored(store: Path, tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop.db", 1)
    script, errors, backup = tmp_path / "shop.py", tmp_path / "errors.txt", tmp_path / "backup.db"
    script.write_text(PROGRAM)
    assert 0 == petstore(store, "db", "migrate").returncode
    key, _ = new_key(store, "backend", UNLIMITED, EVERY_SCOPE)
    assert 0 == petstore(store, "db", "backup", str(backup)).returncode
    with (
        serving(store) as server,
        _program(script, shop.file, _variables(f"{server.api}/v1", key), errors),
    ):
        shop.take(range(1, 41))
        within(PATIENCE, lambda: not shop.unsent())
        assert 0 == petstore(store, "db", "restore", str(backup), "--yes").returncode
        within(PATIENCE, lambda: not shop.unsent() and shop.orders() == _stored(store))
    assert 40 == len(shop.orders())
