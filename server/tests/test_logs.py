"""The log: JSON Lines, each with its process id; a log that cannot be written neither raises nor waits."""

import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from petstore_server.telemetry.logs import LineWriter, configure_logging, write_record
from support.subprocesses import busy

LOG = logging.getLogger("petstore_server.tests")


class Hostile:
    """A value that cannot be turned into text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    configure_logging("info", stream)
    return stream


def test_a_line_is_one_json_object_with_level_time_and_process_id(log: io.StringIO) -> None:
    LOG.warning("key banned", extra={"ban_level": 2})
    [line] = log.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("timestamp").endswith("Z")
    assert {"event": "key banned", "level": "warning", "ban_level": 2, "pid": os.getpid()} == entry


def test_messages_of_libraries_are_not_written_to_stderr() -> None:
    program = (
        "import logging; from petstore_server.telemetry.logs import configure_logging; configure_logging('info'); "
        "logging.getLogger('python_multipart.multipart').warning('key pso_live_x'); "
        "logging.getLogger('petstore_server.x').warning('ours')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ["ours"] == [json.loads(line)["event"] for line in done.stderr.splitlines()]


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", ["a lone surrogate \udcff", Hostile(), {Hostile(): 1}, 2**70, LOOP])
def test_a_value_that_cannot_be_encoded_does_not_raise(log: io.StringIO, value: object) -> None:
    LOG.error("strange", extra={"value": value})
    assert "strange" == json.loads(log.getvalue())["event"]


@pytest.mark.parametrize("value", ["a lone surrogate \udcff", Hostile(), "plain", None])
def test_a_record_is_one_line_whatever_it_holds(log: io.StringIO, value: object) -> None:
    write_record({"event": "strange", "value": value})
    [line] = log.getvalue().splitlines()
    assert {"event", "value"} == json.loads(line).keys()


def pipe() -> tuple[int, int]:
    return os.pipe()


def test_lines_arrive_in_order() -> None:
    reader, writer = pipe()
    lines = LineWriter(writer)
    for number in range(1000):
        lines.write(f"{number}\n")
    lines.drain()
    os.close(writer)
    with os.fdopen(reader) as received:
        assert [f"{number}\n" for number in range(1000)] == received.readlines()
    assert 0 == lines.lost


def test_a_closed_pipe_loses_lines_and_counts_them() -> None:
    reader, writer = pipe()
    os.close(reader)
    lines = LineWriter(writer)
    for _ in range(3):
        lines.write("lost\n")
    lines.drain()
    assert 3 == lines.lost
    os.close(writer)


def test_a_full_disk_loses_lines_and_counts_them() -> None:
    with Path("/dev/full").open("wb") as full:
        lines = LineWriter(full.fileno())
        lines.write("lost\n")
        lines.drain()
    assert 1 == lines.lost


def test_a_process_without_stderr_loses_all_lines() -> None:
    lines = LineWriter(-1)
    lines.write("lost\n")
    lines.drain()
    assert 1 == lines.lost


def test_a_reader_that_has_stopped_delays_neither_a_line_nor_the_end_and_gets_the_lines_that_fit_later() -> None:
    reader, writer = pipe()
    lines = LineWriter(writer, capacity=500)
    began = time.monotonic()
    for number in range(1000):
        lines.write(f"{number:1000}\n")
    lines.drain(seconds=0.1)
    assert time.monotonic() - began < 5 + busy()
    received = bytearray()

    def read() -> None:
        while part := os.read(reader, 1 << 16):
            received.extend(part)

    thread = threading.Thread(target=read)
    thread.start()
    lines.drain(seconds=10)
    os.close(writer)
    thread.join(timeout=10)
    os.close(reader)
    assert lines.lost >= 400
    assert 1000 - lines.lost == received.count(b"\n")


def test_a_descriptor_that_another_program_made_non_blocking_is_waited_for() -> None:
    reader, writer = pipe()
    os.set_blocking(writer, False)
    lines = LineWriter(writer)
    for number in range(300):
        lines.write(f"{number:1000}\n")
    received = b""
    while received.count(b"\n") < 300:
        received += os.read(reader, 1 << 16)
    assert 0 == lines.lost
    os.close(writer)
    os.close(reader)
