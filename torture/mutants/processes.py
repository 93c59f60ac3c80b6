"""Running tests of the product: collected once by pytest, and a child for what one mutant may break."""

import contextlib
import ctypes
import multiprocessing
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

_PR_SET_CHILD_SUBREAPER = 36
_OPTIONS = ["-q", "-m", "not system", "-p", "no:cacheprovider", "--timeout=30"]
_WITHOUT_POSTGRES = ["-k", "not postgres and not scaled"]


class _Plugin:
    """Uses the collected tests as `work` says, instead of running all of them."""

    def __init__(self, work: Callable[[dict[str, pytest.Item]], None]) -> None:
        self._work = work

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)  # shrinking would take long, and nothing reads the result
        settings.register_profile("mutants", deadline=None, database=None, derandomize=True, phases=phases)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if preloaded := sys.modules.get("testing.preloaded"):  # the servers of tests are copies of this process
            vars(preloaded)["forking"] = partial(multiprocessing.get_context, "fork")
        self._work({item.nodeid: item for item in session.items})
        return True


def collected(
    files: Iterable[str], work: Callable[[dict[str, pytest.Item]], None], folder: Path, *, postgres: bool
) -> int:
    """Collect tests, on PostgreSQL too or not; do `work` with them in this process; return pytest's status."""
    sys.dont_write_bytecode = True
    selected = [] if postgres else _WITHOUT_POSTGRES
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        return int(pytest.main([*files, *_OPTIONS, *selected, f"--basetemp={folder}"], [_Plugin(work)]))


def passes(items: list[pytest.Item]) -> bool:
    """Run tests until one fails."""
    failed: list[object] = []

    class Watch:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
            if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception):
                failed.append(call.excinfo)

    for item, following in zip(items, [*items[1:], None], strict=True):
        watch = item.config.pluginmanager.register(Watch(), "watch")
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item.config.pluginmanager.unregister(name=watch)
        if failed:
            return False
    return True


def in_child(run: Callable[[], bool], seconds: float) -> str:
    """Fork; run this with a time limit; end what it has started."""
    _adopt_orphans(True)
    ready, done = os.pipe()
    own = _children()
    if not (child := os.fork()):
        status = 1
        try:
            os.setpgid(0, 0)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (1, 2):
                os.dup2(nothing, stream)
            status = 0 if run() else 1
        finally:
            os._exit(status)
    os.close(done)
    in_time, _, _ = select.select([ready], [], [], seconds)  # readable at its end
    os.close(ready)
    if not in_time:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    while left := _children() - own:  # such as servers in sessions of their own
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    _adopt_orphans(False)  # or what else this process starts would stay in its place, unwaited for
    if not in_time:
        return "timeout"
    return "survived" if status == 0 else "killed"


def _adopt_orphans(adopts: bool) -> None:
    """Whether processes below this one become its children when their parents end, as they do those of init."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopts))


def _children() -> set[int]:
    return {int(child) for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()}
