"""Fixtures of more than one module: the engines, the stores that every storage test runs over, and the client."""

import gc
import logging
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from petstore_server import deadlines
from petstore_server.engines.sqlite import opening
from petstore_server.store import Store
from petstore_server.telemetry.logs import configure_logging
from testing import service
from testing.browser import chromium
from testing.cli import CommandLine
from testing.client_variants import Connect, asynchronous, blocking
from testing.console import Browser, Console, running_console
from testing.deployment import Deployment
from testing.engines import PostgresEngine, shared_postgres
from testing.memory import memory
from testing.postgres_programs import share_empty_servers
from testing.redis_engine import shared_redis
from testing.service import Service
from testing.stores import PostgresPlaces, SqlitePlaces, Stores, add_key
from testing.subprocesses import PATIENCE, PATIENT, at_end

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium

_CLOSING_SECONDS = 10.0

# A run in a shell's background begins with Ctrl-C ignored, one under nohup with SIGHUP; commands that tests start would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure() -> None:
    """Keep the tests' directories in memory, unless the tester says where they are to be."""
    if (folder := memory()) and "TMPDIR" not in os.environ:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", folder)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        share_empty_servers()
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = os.devnull  # every client would load the system's certificates, which no test needs
    # An example may have to wait for a busy processor; each run tries others.
    settings.register_profile("untimed", deadline=None, max_examples=25)
    settings.load_profile("untimed")
    gc.disable()  # until all tests are collected: they stay


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, which a test or the end of a store may ask for."""
    gc.freeze()
    gc.set_threshold(5_000)  # instead of 700: generated examples leave many small cycles
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Undo `configure_logging`: the stream of one test is closed in the next."""
    for logger in (logging.getLogger("petstore_server"), logging.getLogger()):
        for handler in [each for each in logger.handlers if type(each).__module__ == configure_logging.__module__]:
            logger.removeHandler(handler)


def pytest_unconfigure() -> None:
    for left in multiprocessing.active_children():  # of a test that failed; the exit would wait for it
        left.kill()
    at_end.close()


@pytest.fixture
def anyio_backend() -> str:
    """Runs asynchronous tests on asyncio's own loop: uvloop's would wait for all that a failed test left open."""
    return "asyncio"


@pytest.fixture(name="postgres", scope="session")
def _postgres() -> PostgresEngine:
    return shared_postgres()


@pytest.fixture(name="unhurried")
def _unhurried(patient: None) -> None:
    """What a test over PostgreSQL does with time limits: `patient`. Modules that test the limits override it."""


@pytest.fixture(name="patient")
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls to PostgreSQL wait for as long as a busy machine takes."""
    monkeypatch.setattr(deadlines, "TIMEOUTS", PATIENT)


@pytest.fixture(name="postgres_stores")
def _postgres_stores(postgres: PostgresEngine, unhurried: None) -> Iterator[Stores]:
    """Stores in PostgreSQL; no connection may be left when the test has ended."""
    with PostgresPlaces(postgres) as places:
        yield Stores(places)


@pytest.fixture(name="each_backend", params=["sqlite", "postgres"])
def _each_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """Stores of each engine in turn; neither may have a connection left when the test has ended."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_stores")
        return
    yield Stores(SqlitePlaces(tmp_path))
    ends = monotonic() + _CLOSING_SECONDS
    while _open_files(tmp_path) and monotonic() < ends:  # a read on a thread may still be finishing
        sleep(0.05)
    assert [] == _open_files(tmp_path)


@pytest.fixture(name="file_store")
def _file_store(tmp_path: Path) -> Stores:
    """Stores of one engine, for rules that no engine takes part in."""
    return Stores(SqlitePlaces(tmp_path))


@pytest.fixture(name="cli")
def _cli(tmp_path: Path) -> CommandLine:
    """The command line on a new store."""
    return CommandLine(tmp_path / "store.db")


@pytest.fixture(name="acme")
def _acme(cli: CommandLine) -> CommandLine:
    """The command line on a new store, which has an account."""
    cli.must("accounts", "create", "acme", "--plan", "free")
    return cli


@pytest.fixture(name="store")
async def _store(each_backend: Stores) -> AsyncIterator[Store]:
    """A new store of each engine in turn."""
    async with each_backend.opened() as store:
        yield store


@pytest.fixture(name="postgres_store")
async def _postgres_store(postgres_stores: Stores) -> AsyncIterator[Store]:
    """A new store in PostgreSQL."""
    async with postgres_stores.opened() as store:
        yield store


@pytest.fixture(name="service")
async def _service(request: pytest.FixtureRequest, deployment: Deployment) -> AsyncIterator[Service]:
    """The whole application in this process; the marker `settings` has its environment variables."""
    marker = request.node.get_closest_marker("settings")
    async with service.running(deployment, **(marker.kwargs if marker else {})) as running:
        yield running


@pytest.fixture(name="console")
async def _console(request: pytest.FixtureRequest) -> AsyncIterator[Console]:
    """A console over a new store: of each engine if the test asks for `each_backend`, otherwise of SQLite.

    The marker `settings` has its environment variables.
    """
    stores = "each_backend" if "each_backend" in request.fixturenames else "file_store"
    marker = request.node.get_closest_marker("settings")
    async with running_console(request.getfixturevalue(stores), marker.kwargs if marker else None) as console:
        yield console


@pytest.fixture(name="browser")
async def _browser(console: Console) -> Browser:
    """The first operator's browser, signed in to the console."""
    return await console.browser.sign_in()


@pytest.fixture(name="chromium", scope="module")  # its event loop disturbs the asynchronous tests of other modules
def _chromium() -> Iterator["Chromium"]:
    with chromium() as browser:
        yield browser


@pytest.fixture(name="zoo")
async def _zoo(console: Console, browser: Browser) -> None:
    """An account with a key, whose page the browser shows."""
    await add_key(console.store)
    await browser.get("/accounts/zoo")


def _open_files(directory: Path) -> list[Path]:
    """The files below a directory that this process has open, but for the descriptors that served as a lock (D12)."""
    found = []
    kept = {str(descriptor) for descriptors in opening.kept_descriptors.values() for descriptor in descriptors}
    for descriptor in Path("/proc/self/fd").iterdir():
        if descriptor.name in kept:
            continue
        with suppress(FileNotFoundError):  # that of the listing itself
            found.append(descriptor.readlink())
    return [file for file in found if file.is_relative_to(directory)]


@pytest.fixture(name="scaled_out")
def _scaled_out(postgres: PostgresEngine, unhurried: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Settings for a new store and an empty Redis; no connection may be left when the test has ended."""
    # A service in this process takes no Redis that has to wait for a busy processor to be gone.
    monkeypatch.setattr(deadlines, "TIMEOUTS", deadlines.TIMEOUTS._replace(counters=PATIENCE))
    with PostgresPlaces(postgres) as places:
        yield {"PETSTORE_DATABASE_URL": places.new_store(), "PETSTORE_REDIS_URL": shared_redis().empty()}


@pytest.fixture(name="each_deployment", params=["embedded", "scaled-out"])
def _each_deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    """A new store in SQLite with limits in process, then one in PostgreSQL with limits in Redis."""
    chosen = request.getfixturevalue("scaled_out") if request.param == "scaled-out" else {}
    return Deployment(tmp_path / "store.db", chosen)


@pytest.fixture(name="deployment")
def _deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    """That of `each_deployment` in a test over each, otherwise a new store in SQLite."""
    each = "each_deployment" in request.fixturenames
    return request.getfixturevalue("each_deployment") if each else Deployment(tmp_path / "store.db")


@pytest.fixture(params=[blocking, asynchronous], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes a client of a fake service: once the blocking variant, once the asynchronous one."""
    made: Connect = request.param
    return made
