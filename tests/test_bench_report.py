"""The report of `make bench`: tables from recorded results."""

import subprocess
from pathlib import Path

import pytest

from bench import machine, report, results
from bench.groups import GROUPS
from bench.machine import BenchError
from bench.report import Documents
from bench.results import Goal, Group, Machine, Results, Row
from testing import needs

ROOT = Path(__file__).resolve().parents[1]


def recorded(*rows: Row) -> Results:
    where = Machine("A processor", 2, 8.0, 0.1, {"nginx": "1.22.1"})
    return {"lists": Group("Lists", "2026-11-21 12:00 UTC", "abc123", 3, 61.4, where, list(rows))}


LIST = Row(
    "list-10",
    "List of 10 orders",
    "lists/s",
    {
        "petstore": [50_000.0, 60_000.0, 55_000.0],
        "nginx": [100_000.0, 100_000.0, 100_000.0],
        "other": [25_000.0, 30_000.0, 27_500.0],
    },
    "nginx",
    Goal(0.5),
    {"petstore": [17.0, 16.0, 18.0], "nginx": [8.0, 8.0, 8.0]},
    "A note.",
)
START = Row("start", "Start", "s", {"petstore": [0.62, 0.4]}, goal=Goal(0.5, at_most=True, absolute=True))
VARIANTS = Row(
    "pair",
    "Slowest pair",
    "ms",
    {"SQLite": [3.0, 4.0], "PostgreSQL": [4.0, 5.5]},
    goal=Goal(5, at_most=True, absolute=True),
)


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [([0.5, 0.6, 0.7], "met"), ([0.499, 0.6, 0.7], "met in the median"), ([0.4, 0.499, 0.7], "short"), ([], "short")],
)
def test_a_goal_is_met_only_if_every_round_meets_it(readings: list[float], verdict: str) -> None:
    assert verdict == Goal(0.5).verdict(readings)
    assert verdict == Goal(-0.5, at_most=True).verdict([-reading for reading in readings])


def test_the_summary_counts_the_goals_and_lists_those_that_a_round_has_missed() -> None:
    text = report.summary(recorded(LIST, START, VARIANTS))
    assert text.startswith("Of 4 goals, 2 are met, 1 only in the median, 1 not.\n")
    assert "| Start | 0.51 s (0.4–0.62) | ≤ 0.5 s | **short** |" in text
    lines = [line.split(" | ")[0][2:] for line in text.splitlines() if line.startswith("| ")]
    assert ["Start", "Slowest pair, PostgreSQL"] == lines[2:]
    assert "Measured on: A processor, 2 cores, 8 GiB; nginx 1.22.1." in text


def test_a_group_without_a_place_on_the_page_is_an_error() -> None:
    with pytest.raises(BenchError, match="no place for lists"):
        report.in_order(Documents(Path(), {Path("page.md"): "Nothing here.\n"}), recorded(LIST))


def test_results_are_read_as_they_were_written_and_merged_by_group(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    first = recorded(LIST, START, VARIANTS)
    results.write(file, first)
    assert first == results.read(file)
    other = {"cancels": first["lists"]}
    results.write(file, other)
    assert first | other == results.read(file)


def test_the_documentation_has_a_place_for_every_group_and_shows_the_committed_results() -> None:
    documents = report.documents(ROOT)
    assert sorted(GROUPS) == sorted(report.places("".join(documents.texts.values())))
    ordered = report.in_order(documents, results.read(ROOT / "bench" / "results.json"))
    for text in documents.texts.values():
        assert text == report.page(text, ordered)


def test_only_a_commit_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the benchmark writes itself is not a change; anything else is."""
    written = ("bench/results.json", "bench/results.md", "docs/performance.md")
    for name in (*written, "docs/img/logo.svg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    git = (needs.program("git"), "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.com")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "One"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    for name in written:
        (tmp_path / name).write_text("two")
    assert not machine.revision().endswith("+")
    (tmp_path / "docs" / "img" / "logo.svg").write_text("two")
    assert machine.revision().endswith("+")
