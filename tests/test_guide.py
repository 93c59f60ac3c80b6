"""The guide for partners: every example in Python runs, and both recipes for following changes skip nothing."""

import os
import re
import runpy
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from urllib.error import HTTPError

import pytest

from petstore_client._types import SYSTEM_CLOCK
from petstore_client.testing import Answered, Failing, RateLimited
from petstore_server.domain.accounts import PLAN_LIMITS
from testing import needs
from testing.awkward_proxy import awkward_proxy
from testing.client_variants import faulty
from testing.documents import SOURCE, read_yaml, run_script, table
from testing.foreign_examples import command_of, run_example
from testing.process import EVERY_SCOPE, UNLIMITED, Server, new_key, petstore, petstore_json, put_orders, serving
from testing.served_fake import served
from testing.subprocesses import PATIENCE, within

GUIDE = SOURCE / "api" / "guide" / "guide.md"
TEXT = GUIDE.read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
FOLLOW_IN_SHELL, FOLLOW_IN_PYTHON = re.findall(
    r"<!-- follow -->\n(?:<!-- runs.*? -->\n)?```\w+\n(.*?)```", TEXT, re.DOTALL
)
(BACKOFF,) = [example for example in EXAMPLES if "def send(" in example]
AT_ONCE = 250
"""Orders of one transaction, and so of one `updatedAt`."""

A_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
"""A Retry-After that the service never sends, but a proxy may."""

CANCELLED = {"javascript": "7", "php": "9"}
"""The order that the example in a language cancels."""

in_each_language = pytest.mark.parametrize("language", CANCELLED)

Follow = Callable[[], list[int]]
"""Runs a recipe; returns the identifiers of the orders that it handled."""


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(name="server")
def _server(store: Path) -> Iterator[Server]:
    put_orders(store, AT_ONCE)
    assert 0 == petstore(store, "orders", "ship", "4").returncode
    assert 0 == petstore(store, "pets", "import", "-", "--format", "jsonl", text='{"id":1,"name":"Rex"}\n').returncode
    with serving(store) as server:
        yield server


@pytest.fixture(name="environ")
def _environ(store: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables that the guide asks its reader to set."""
    # On a small plan, a client would wait until the minute ends: it sees that others use it, such as curl in examples.
    key, _ = new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)
    api = f"{server.api}/v1"
    environ = {"API": api, "KEY": key, "PETSTORE_BASE_URL": api, "PETSTORE_API_KEY": key}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


def _run(example: str, folder: Path) -> None:
    script = folder / "example.py"
    script.write_text(example)
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("through_proxy", [False, True])
def test_every_example_in_python_runs_also_through_a_proxy_that_capitalises_names_and_breaks_its_first_connection(
    environ: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    through_proxy: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES:
        with awkward_proxy(environ["API"]) if through_proxy else nullcontext(environ["API"]) as url:
            monkeypatch.setenv("PETSTORE_BASE_URL", url)
            _run(example, tmp_path)
    assert "" == capfd.readouterr().err


@pytest.mark.system
@in_each_language
def test_the_example_in_another_language_lists_and_cancels(
    environ: dict[str, str], store: Path, tmp_path: Path, language: str
) -> None:
    first, again = (run_example(GUIDE, language, environ, tmp_path) for _ in range(2))
    assert (0, f"{AT_ONCE - 1}\n", "") == (first.returncode, first.stdout, first.stderr)
    assert "cancelled" == petstore_json(store, "orders", "show", CANCELLED[language])["status"]
    assert_cancelled_before(again)


def assert_cancelled_before(done: subprocess.CompletedProcess[str]) -> None:
    """The example has printed that its order was cancelled before."""
    pending, refusal = done.stdout.splitlines()
    assert (0, f"{AT_ONCE - 2}", "") == (done.returncode, pending, done.stderr)
    assert refusal.startswith('409 {"code":"order_already_cancelled",')


def test_the_example_in_python_that_cancels_prints_the_code_in_a_second_run(
    environ: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert environ
    (example,) = [each for each in EXAMPLES if "cancel_order(6)" in each]
    for _ in range(2):
        _run(example, tmp_path)
    first, second, refusal = capfd.readouterr().out.splitlines()
    assert (AT_ONCE - 1, AT_ONCE - 2) == (int(first), int(second))
    assert refusal.endswith("(409 order_already_cancelled)")


@pytest.mark.system
@in_each_language
def test_the_example_in_another_language_cancels_once_although_connections_break(
    environ: dict[str, str], store: Path, tmp_path: Path, language: str
) -> None:
    with awkward_proxy(environ["API"], cut=("GET", "DELETE")) as url:
        done = run_example(GUIDE, language, {**environ, "API": url}, tmp_path)
    assert (0, f"{AT_ONCE - 1}\n", "") == (done.returncode, done.stdout, done.stderr)
    assert "cancelled" == petstore_json(store, "orders", "show", CANCELLED[language])["status"]
    with awkward_proxy(environ["API"]) as url:  # now it was another program, and nothing was lost
        again = run_example(GUIDE, language, {**environ, "API": url}, tmp_path)
    assert_cancelled_before(again)


@pytest.mark.system
@in_each_language
def test_the_example_in_another_language_waits_after_a_429_and_shows_the_page_of_a_proxy(
    tmp_path: Path, language: str
) -> None:
    page, refusal = Answered(200, b'{"data":[1]}'), Answered(403, b"<h1>No entry</h1>", {"retry-after": "77"})
    fake = faulty([], RateLimited(1), Answered(503, headers={"retry-after": A_DATE}), page, refusal, clock=SYSTEM_CLOCK)
    with served(fake) as url:
        done = run_example(GUIDE, language, {"API": url, "KEY": "pso_live_x"}, tmp_path)
    arrived = [request.at for request in fake.requests]
    assert 0 != done.returncode
    assert "1\n" == done.stdout
    assert "403 <h1>No entry</h1> Retry-After: 77" in done.stderr
    assert 1 <= arrived[1] - arrived[0] < 60
    assert 2 <= arrived[2] - arrived[1] < 60


@pytest.mark.system
@in_each_language
def test_the_example_in_another_language_can_wait_for_the_limit_of_the_day(tmp_path: Path, language: str) -> None:
    fake = faulty([], RateLimited(4295), Answered(200, b'{"data":[]}'))  # 2^32 microseconds
    with served(fake) as url:
        environ = {**os.environ, "API": url, "KEY": "pso_live_x"}
        with subprocess.Popen(command_of(GUIDE, language, tmp_path), env=environ) as process:
            try:
                within(PATIENCE, lambda: bool(fake.requests))
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(2)
            finally:
                process.kill()
    assert 1 == len(fake.requests)


@pytest.fixture(name="follow_in_python")
def _follow_in_python(
    environ: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Follow:
    assert environ
    monkeypatch.chdir(tmp_path)

    def follow() -> list[int]:
        _run(FOLLOW_IN_PYTHON, tmp_path)
        return [int(number) for number in re.findall(r"^(\d+) \w+$", capfd.readouterr().out, re.MULTILINE)]

    return follow


@pytest.fixture(name="follow_in_a_shell")
def _follow_in_a_shell(environ: dict[str, str], tmp_path: Path) -> Follow:
    needs.program("curl")

    def follow() -> list[int]:
        printed = run_script(FOLLOW_IN_SHELL, {**os.environ, **environ}, tmp_path).stdout
        return [int(number) for number in re.findall(r'"id":(\d+)', printed)]

    return follow


@pytest.mark.parametrize("language", ["python", "a_shell"])
def test_following_changes_begins_with_every_order_and_returns_only_those_that_changed(
    language: str, request: pytest.FixtureRequest, store: Path, tmp_path: Path
) -> None:
    follow: Follow = request.getfixturevalue(f"follow_in_{language}")
    with closing(sqlite3.connect(store, isolation_level=None)) as database:
        database.execute("UPDATE orders SET updated_at = 1 WHERE id = 7")
    first = follow()
    assert ([7, 4], [*range(1, AT_ONCE + 1)]) == ([first[0], first[-1]], sorted(first))
    assert 0 == petstore(store, "orders", "ship", "9").returncode
    assert [9] == follow()
    (tmp_path / "token.txt").unlink()
    assert sorted(first) == sorted(follow())


def test_a_refused_request_for_changes_keeps_the_token(
    environ: dict[str, str], follow_in_a_shell: Follow, tmp_path: Path
) -> None:
    assert AT_ONCE == len(follow_in_a_shell())
    token = (tmp_path / "token.txt").read_text()
    environ["KEY"] += "x"
    assert [] == follow_in_a_shell()
    assert token == (tmp_path / "token.txt").read_text()


def test_the_backoff_doubles_and_is_never_shorter_than_retry_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    late = Answered(503, headers={"retry-after": A_DATE})
    with served(faulty([], RateLimited(3), RateLimited(3), Failing(), late, Answered(200, b"[]"))) as url:
        monkeypatch.setenv("PETSTORE_BASE_URL", url)
        monkeypatch.setenv("PETSTORE_API_KEY", "pso_live_x")
        pauses: list[float] = []
        sleep, here = time.sleep, threading.get_ident()
        monkeypatch.setattr(time, "sleep", lambda s: pauses.append(s) if threading.get_ident() == here else sleep(s))
        _run(BACKOFF, tmp_path)
    assert all(least <= pause <= least + 1 for least, pause in zip((3, 6, 12, 24), pauses, strict=True)), pauses
    assert "b'[]'\n" == capfd.readouterr().out


def test_the_backoff_shows_the_wait_of_an_error_that_it_does_not_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(faulty([], Answered(403, b"No entry", {"retry-after": "77"}))) as url:
        monkeypatch.setenv("PETSTORE_BASE_URL", url)
        monkeypatch.setenv("PETSTORE_API_KEY", "pso_live_x")
        with pytest.raises(HTTPError) as caught:
            _run(BACKOFF, tmp_path)
    assert ["Retry-After: 77"] == caught.value.__notes__


def test_the_table_of_an_order_has_the_fields_of_the_contract() -> None:
    contract = read_yaml(SOURCE / "api" / "openapi.yaml")
    assert list(contract["components"]["schemas"]["Order"]["properties"]) == [row[0] for row in table(GUIDE, "order")]


def test_the_polling_intervals_leave_a_quarter_of_the_day() -> None:
    rows = dict(re.findall(r"^\| (Free|Pro|Business) \| ([\d.]+ \w+) \|$", TEXT, re.MULTILINE))
    seconds = {plan: float(text.split()[0]) * (60 if text.endswith("minutes") else 1) for plan, text in rows.items()}
    assert {"Free", "Pro", "Business"} == set(seconds)
    for plan, limits in PLAN_LIMITS.items():
        if (interval := seconds.get(str(plan).capitalize())) is not None:
            assert 86_400 / interval <= 0.75 * limits.per_day
