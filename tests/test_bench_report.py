"""The report of `make bench`: tables and charts from recorded results."""

from pathlib import Path

import pytest
from bench import report, results
from bench.groups import GROUPS
from bench.machine import BenchError
from bench.results import Curve, Goal, Group, Machine, Results, Row

ROOT = Path(__file__).resolve().parents[1]
PAGE = """Before.

<!-- bench:summary -->
old
<!-- /bench:summary -->

Between.

<!-- bench:lists -->
<!-- /bench:lists -->
"""


def recorded(*rows: Row, curves: list[Curve] | None = None) -> Results:
    machine = Machine("A processor", 2, 8.0, 0.1, {"nginx": "1.22.1"})
    return {"lists": Group("Lists", "2026-11-21 12:00 UTC", "abc123", 3, 61.4, machine, list(rows), curves or [])}


LIST = Row(
    "list-10",
    "List of 10 orders",
    "lists/s",
    {
        "petstore": [50_000.0, 60_000.0, 55_000.0],
        "nginx": [100_000.0, 100_000.0, 100_000.0],
        "FastAPI": [500.0, 500.0, 500.0],
        "baseline": [25_000.0, 30_000.0, 27_500.0],
        results.EVENT_LOOP: [110_000.0, 120_000.0, 110_000.0],
    },
    "nginx",
    Goal(0.45, aim=0.6),
    {"petstore": [17.0, 16.0, 18.0]},
    "A note.",
)
START = Row("start", "Start", "s", {"petstore": [0.62], "FastAPI": [1.24]}, goal=Goal(0.5, at_most=True, absolute=True))
UNSERVED = [Row(name, name.title(), "", missing="not served by this version") for name in ("pages", "places")]
CURVE = Curve(
    "orders", "Time by orders", "orders", "µs", {"list": {1000: [30.0, 20.0, 25.0], 10: [15.0]}, "nginx": {10: [9.0]}}
)


def test_a_row_is_shown_with_its_reference_ratio_goal_rivals_and_costs() -> None:
    assert report.section(recorded(LIST)["lists"]) == (
        "|  | petstore | reference | ratio | goal |\n"
        "| --- | --: | --: | --: | --: |\n"
        "| List of 10 orders | 55,000 lists/s (50,000–60,000) | nginx: 100,000 lists/s"
        " | 0.55 (0.5–0.6) | ≥ 0.45, aim 0.6 |\n"
        "\n"
        "|  | other | its result | petstore |\n"
        "| --- | --: | --: | --: |\n"
        "| List of 10 orders | FastAPI | 500 lists/s | 110 (100–120) times as fast |\n"
        "| List of 10 orders | baseline | 27,500 lists/s | ratio 2 (2–2) |\n"
        "| List of 10 orders | uvloop, the same bytes | 110,000 lists/s | ratio 0.5 (0.455–0.5) |\n"
        "\n"
        "| processor time per request | petstore |\n"
        "| --- | --: |\n"
        "| List of 10 orders | 17 µs |\n"
        "\n"
        "- List of 10 orders: A note.\n"
        "\n"
        "Revision abc123, 2026-11-21 12:00 UTC, 3 rounds, 61 seconds."
    )


def test_the_summary_says_which_goals_are_met() -> None:
    lines = report.summary(recorded(LIST, START)).splitlines()
    assert "| List of 10 orders | 0.55 of nginx | ≥ 0.45, aim 0.6 | met |" in lines
    assert "| Start | 0.62 s | ≤ 0.5 s | **short** |" in lines
    assert "Measured on: A processor, 2 cores, 8 GiB; nginx 1.22.1." in lines


def test_a_time_that_is_half_as_long_counts_as_twice_as_fast() -> None:
    assert {"FastAPI": [2.0]} == report.rival_factors(START)


def test_rows_that_could_not_be_measured_are_named_with_the_reason() -> None:
    assert "- Not measured, not served by this version: Pages; Places." in report.section(recorded(*UNSERVED)["lists"])


def test_a_curve_is_shown_as_a_chart_and_as_a_table_of_medians() -> None:
    text = report.section(recorded(curves=[CURVE])["lists"])
    assert "![Time by orders](img/performance-orders.svg)" in text
    assert "| 10 | 15 | 9 |\n| 1,000 | 25 |  |" in text


def test_only_what_is_between_the_markers_of_a_page_is_replaced() -> None:
    page = report.page(PAGE, recorded(LIST))
    assert page.startswith("Before.\n\n<!-- bench:summary -->\n\n|")
    assert "\n<!-- /bench:summary -->\n\nBetween.\n\n<!-- bench:lists -->\n" in page
    assert "old" not in page
    assert page == report.page(page, recorded(LIST))


def test_a_group_without_a_place_on_the_page_is_an_error() -> None:
    with pytest.raises(BenchError, match="no place for lists"):
        report.page("Nothing here.\n", recorded(LIST))


def test_results_are_read_as_they_were_written_and_merged_by_group(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    first = recorded(LIST, START, *UNSERVED, curves=[CURVE])
    results.write(file, first)
    assert first == results.read(file)
    other = {"cancels": first["lists"]}
    results.write(file, other)
    assert first | other == results.read(file)


def test_charts_are_drawn_for_goals_rivals_and_curves(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="`make bench` installs matplotlib")
    from bench import charts

    charts.draw(recorded(LIST, START, curves=[CURVE]), tmp_path)
    names = ["performance-goals.svg", "performance-orders.svg", "performance-rivals.svg"]
    assert names == sorted(file.name for file in tmp_path.iterdir())
    assert "Time by orders" in (tmp_path / "performance-orders.svg").read_text()


def test_the_documentation_has_a_place_for_every_group_and_shows_the_committed_results() -> None:
    text = report.in_repository(ROOT).text
    for name in GROUPS:
        assert f"<!-- bench:{name} -->" in text
    assert text == report.page(text, results.read(ROOT / "bench" / "results.json"))
