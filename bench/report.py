"""Tables and charts of results, written into a Markdown page between markers.

A page has a place for each group, `<!-- bench:NAME -->` to `<!-- /bench:NAME -->`, and one for `summary`. Whatever
stands outside the markers is written by hand and kept.
"""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.machine import BenchError
from bench.results import PRODUCT, RATIOS, Curve, Goal, Group, Results, Row

_MARKED = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
_LOWER_IS_BETTER = {"s", "ms", "MB"}
NOT_MEASURED = "Not measured yet."


class Documents(NamedTuple):
    """The page to write, the text to begin with, and the folder of the charts, which is next to the page."""

    page: Path
    text: str
    charts: Path


def in_repository(root: Path) -> Documents:
    """The committed documentation."""
    page = root / "docs" / "performance.md"
    return Documents(page, page.read_text(), page.with_name("img"))


def in_folder(root: Path, folder: Path) -> Documents:
    """A copy in another folder, for runs that are not to be committed."""
    return Documents(folder / "performance.md", in_repository(root).text, folder / "img")


def write(documents: Documents, results: Results) -> None:
    """Write the page with its tables, and the charts that they show."""
    from bench import charts

    text = page(documents.text, results)
    documents.charts.mkdir(parents=True, exist_ok=True)
    documents.page.write_text(text)
    charts.draw(_in_order(documents.text, results), documents.charts)


def page(text: str, results: Results) -> str:
    """The page with the content of every place replaced; groups that were not measured are named as such."""
    ordered = _in_order(text, results)

    def content(found: re.Match[str]) -> str:
        name = found[2]
        body = NOT_MEASURED
        if name == "summary":
            body = summary(ordered)
        elif name in ordered:
            body = section(ordered[name])
        return f"{found[1]}\n{body}\n\n{found[3]}"

    return _MARKED.sub(content, text)


def _in_order(text: str, results: Results) -> Results:
    """The groups in the order of their places on the page."""
    places = [name for _, name, _ in _MARKED.findall(text)]
    homeless = set(results) - set(places)
    if homeless:
        raise BenchError(f"docs/performance.md has no place for {', '.join(sorted(homeless))}.")
    return {name: results[name] for name in places if name in results}


def summary(results: Results) -> str:
    """All rows that have a goal, and the charts over all groups."""
    rows = [row for group in results.values() for row in group.rows if row.goal]
    if not rows:
        return NOT_MEASURED
    lines = [_goal_cells(row) for row in rows]
    parts = [
        _table(("", "reached", "goal", ""), lines),
        "![Reached, as a share of the goal](img/performance-goals.svg)",
    ]
    if any(rival_factors(row) for group in results.values() for row in group.rows):
        parts.append("![How many times as fast as other services](img/performance-rivals.svg)")
    return "\n\n".join([*parts, _machines(results)])


def _goal_cells(row: Row) -> tuple[str, ...]:
    assert row.goal
    reached = row.reached()
    if reached is None:
        return row.title, row.missing or "not measured", goal_text(row.goal, row.unit), ""
    value = _value(reached, row.unit) if row.goal.absolute else f"{_number(reached)} of {row.reference}"
    return row.title, value, goal_text(row.goal, row.unit), "met" if row.goal.met_by(reached) else "**short**"


def goal_text(goal: Goal, unit: str) -> str:
    """A goal in words: `≥ 0.8, aim 0.9`."""

    def text(value: float) -> str:
        return _value(value, unit) if goal.absolute else _number(value)

    bound = f"{'≤' if goal.at_most else '≥'} {text(goal.value)}"
    return bound if goal.aim is None else f"{bound}, aim {text(goal.aim)}"


def rival_factors(row: Row) -> dict[str, list[float]]:
    """How many times as fast the product is as each of the others, the reference left out, round by round."""
    others = [name for name in row.samples if name not in (PRODUCT, *RATIOS, row.reference)]
    ratios = {name: row.ratios(name) for name in others}
    if row.unit in _LOWER_IS_BETTER:
        return {name: [1 / ratio for ratio in found] for name, found in ratios.items()}
    return ratios


def section(group: Group) -> str:
    """The tables and charts of one group."""
    measured = [row for row in group.rows if not row.missing]
    parts = [_against_reference(measured), _against_others(measured), _costs(measured)]
    parts += [_curve(curve) for curve in group.curves]
    notes = [f"- {row.title}: {row.note}" for row in measured if row.note]
    for reason in dict.fromkeys(row.missing for row in group.rows if row.missing):
        titles = "; ".join(row.title for row in group.rows if row.missing == reason)
        notes.append(f"- Not measured, {reason}: {titles}.")
    origin = f"Revision {group.revision}, {group.measured_at}, {group.rounds} rounds, {group.took_seconds:.0f} seconds."
    return "\n\n".join(part for part in [*parts, "\n".join(notes), origin] if part)


def _against_reference(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        ratios = row.ratios()
        reference = f"{row.reference}: {_value(_median(row.samples[row.reference]), row.unit)}" if ratios else ""
        ratio = f"{_number(_median(ratios))}{_range(ratios)}" if ratios else ""
        goal = goal_text(row.goal, row.unit) if row.goal else ""
        mine = row.samples[PRODUCT]
        lines.append((row.title, f"{_value(_median(mine), row.unit)}{_range(mine)}", reference, ratio, goal))
    return _table(("", PRODUCT, "reference", "ratio", "goal"), lines)


def _against_others(rows: Sequence[Row]) -> str:
    """The services that people would pick instead, and what else was measured in the same rounds."""
    lines = []
    for row in rows:
        for name, factors in rival_factors(row).items():
            value = _value(_median(row.samples[name]), row.unit)
            lines.append((row.title, name, value, f"{_number(_median(factors))}{_range(factors)} times as fast"))
        for name in filter(row.samples.__contains__, RATIOS):
            ratios = row.ratios(name)
            value = _value(_median(row.samples[name]), row.unit)
            lines.append((row.title, name, value, f"ratio {_number(_median(ratios))}{_range(ratios)}"))
    return _table(("", "other", "its result", PRODUCT), lines)


def _costs(rows: Sequence[Row]) -> str:
    """Processor time per request, a column for each process."""
    processes = list(dict.fromkeys(process for row in rows for process in row.costs))
    lines = [
        (row.title, *(f"{_number(_median(row.costs[name]))} µs" if name in row.costs else "" for name in processes))
        for row in rows
        if row.costs
    ]
    return _table(("processor time per request", *processes), lines)


def _curve(curve: Curve) -> str:
    sizes = sorted({size for points in curve.series.values() for size in points})
    lines = [
        (f"{size:,}", *(_number(_median(points[size])) if size in points else "" for points in curve.series.values()))
        for size in sizes
    ]
    table = _table((f"{curve.x} ({curve.unit})", *curve.series), lines)
    return f"![{curve.title}](img/performance-{curve.name}.svg)\n\n{table}"


def _machines(results: Results) -> str:
    """The machines that the groups were measured on; usually one."""
    texts = []
    for group in results.values():
        machine = group.machine
        versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
        text = f"{machine.processor}, {machine.cores} cores, {machine.memory_gib:.0f} GiB; {versions}"
        if text not in texts:
            texts.append(text)
    return "\n".join(f"Measured on: {text}." for text in texts)


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, or nothing without lines. Columns without content are left out."""
    filled = list(lines)
    if not filled:
        return ""
    columns = [index for index, name in enumerate(header) if index == 0 or any(line[index] for line in filled)]
    rule = ["---" if index == 0 else "--:" for index in columns]
    rows = [[header[index] for index in columns], rule, *([line[index] for index in columns] for line in filled)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _median(readings: Sequence[float]) -> float:
    return statistics.median(readings)


def _range(readings: Sequence[float]) -> str:
    """The smallest and the largest of several readings, in brackets."""
    return f" ({_number(min(readings))}–{_number(max(readings))})" if len(readings) > 1 else ""


def _value(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}"


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 100:
        digits = len(f"{value:.0f}")
        return f"{round(value, min(0, 3 - digits)):,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.6f}".rstrip("0")


def series_medians(points: Mapping[int, Sequence[float]]) -> tuple[list[int], list[float]]:
    """The sizes of a curve in order, and the median at each."""
    sizes = sorted(points)
    return sizes, [_median(points[size]) for size in sizes]
