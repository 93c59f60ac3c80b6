"""A real Prometheus with the shipped configuration and alerts, for tests."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from testing import needs
from testing.documents import ROOT
from testing.subprocesses import PATIENCE, free_port, kill

SHIPPED = ROOT / "deploy" / "prometheus"


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[httpx2.Client]:
    """A Prometheus of this target. Durations are divided by sixty, in its configuration and its alerts."""
    text = (SHIPPED / "prometheus.yml").read_text()
    for old, new in (("127.0.0.1:8081", target), ("_interval: 15s", "_interval: 250ms")):
        assert old in text
        text = text.replace(old, new)
    (folder / "prometheus.yml").write_text(text)
    (folder / "alerts.yml").write_text(_quick((SHIPPED / "alerts.yml").read_text()))
    address = f"127.0.0.1:{free_port()}"
    own = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    command = [needs.program("prometheus"), *own, f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            with httpx2.Client(base_url=f"http://{address}/api/v1", timeout=PATIENCE) as client:
                yield client
        finally:
            kill(process)


def _quick(alerts: str) -> str:
    """The alerts with each duration divided by sixty: `for`, ranges and offsets."""
    seconds = {"m": 1, "h": 60, "d": 1440}
    duration = re.compile(r"(?<=for: )(\d+)([mhd])|(?<=\[)(\d+)([mhd])(?=\])|(?<=offset )(\d+)([mhd])")

    def divided(found: re.Match[str]) -> str:
        number, unit = filter(None, found.groups())
        return f"{int(number) * seconds[unit]}s"

    return duration.sub(divided, alerts)


def ask(prometheus: httpx2.Client, path: str, **parameters: str) -> Any:
    """What its API answers; an empty list while it starts."""
    try:
        response = prometheus.get(path, params=parameters)
    except httpx2.ConnectError:
        return []
    assert response.status_code in (200, 503), response.text
    return response.json()["data"] if response.status_code == 200 else []


def firing(prometheus: httpx2.Client) -> dict[str, dict[str, Any]]:
    """The alerts that fire, by name, with their labels and annotations."""
    found = ask(prometheus, "alerts")
    return {each["labels"]["alertname"]: each for each in found["alerts"] if each["state"] == "firing"} if found else {}
