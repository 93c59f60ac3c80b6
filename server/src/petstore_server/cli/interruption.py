"""SIGTERM and SIGHUP end a command as Ctrl-C does: it cleans up, and reports what it did."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from petstore_server.cli.failures import Interrupted

_PATIENCE = 5  # seconds after a signal before what waits, such as a write to a pipe that is not read, is cut off


@contextmanager
def interruptible() -> Iterator[None]:
    """Within this, SIGTERM and SIGHUP have the effect of Ctrl-C, and then raise Interrupted.

    A signal that is ignored, such as SIGHUP under nohup, remains so. On another thread than the main one, which Python
    does not interrupt, this has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
    else:
        with _blocked_if_ignored(signal.SIGINT), interrupted():
            yield


@contextmanager
def interrupted() -> Iterator[None]:
    """The same on the main thread, for what handles Ctrl-C even where that is ignored."""
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if received:  # a terminal may send SIGHUP twice
            return
        received.append(number)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.alarm(_PATIENCE)
        ctrl_c = signal.getsignal(signal.SIGINT)  # that of asyncio, while it runs: it cancels the task
        if not callable(ctrl_c):  # it is ignored
            raise KeyboardInterrupt
        ctrl_c(signal.SIGINT, frame)

    handled = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in handled:
        signal.signal(each, interrupt)
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        if not received:
            raise
        raise Interrupted(received[0], signal.Signals(received[0]).name) from None
    finally:
        signal.alarm(0)
        for each in handled:
            signal.signal(each, signal.SIG_DFL)


@contextmanager
def _blocked_if_ignored(number: signal.Signals) -> Iterator[None]:
    """Block a signal that is ignored, so that it still has no effect: asyncio replaces only Python's own handler.

    Without the handler of asyncio, a signal cannot cancel its task. A shell has what a script starts in the background
    ignore SIGINT.
    """
    if signal.getsignal(number) is not signal.SIG_IGN:
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
