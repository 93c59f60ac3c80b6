"""Tables of results, written into two Markdown pages between markers.

`docs/performance.md` has a place for the `summary`, `<!-- bench:summary -->` to `<!-- /bench:summary -->`, and
`bench/results.md` one for each group. A place may name several groups, with commas between, which share their tables.
Whatever stands outside the markers is written by hand and kept.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.machine import CHANGED, BenchError
from bench.results import IN_MEDIAN, MET, PRODUCT, SHORT, Claim, Goal, Group, Results, Row

_MARKED = re.compile(r"(<!-- bench:([\w,]+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
_LOWER_IS_BETTER = {"s", "ms", "MB"}
NOT_MEASURED = "Not measured yet."
SUMMARY = "summary"
PAGES = ("docs/performance.md", "bench/results.md")


class Documents(NamedTuple):
    """A folder, and the texts of the pages by the files in it to write."""

    folder: Path
    texts: dict[Path, str]


def documents(root: Path, folder: Path | None = None) -> Documents:
    """The committed documentation, or a copy in another folder, for runs that are not to be committed."""
    target = folder or root
    return Documents(target, {target / name: (root / name).read_text() for name in PAGES})


def write(documents: Documents, results: Results) -> None:
    """Write the pages with their tables."""
    ordered = in_order(documents, results)
    for file, text in documents.texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(text, ordered))


def page(text: str, ordered: Results) -> str:
    """The page with the content of every place replaced."""

    def content(found: re.Match[str]) -> str:
        body = summary(ordered)
        if found[2] != SUMMARY:
            body = section([ordered[name] for name in found[2].split(",") if name in ordered])
        return f"{found[1]}{body or NOT_MEASURED}\n{found[3]}"

    return _MARKED.sub(content, text)


def places(text: str) -> list[str]:
    """The groups that a page has places for, in their order."""
    return [name for _, names, _ in _MARKED.findall(text) for name in names.split(",") if name != SUMMARY]


def in_order(documents: Documents, results: Results) -> Results:
    """The groups in the order of their places on the pages. Raises BenchError if a group has no place."""
    names = places("".join(documents.texts.values()))
    homeless = set(results) - set(names)
    if homeless:
        raise BenchError(f"{PAGES[-1]} has no place for {', '.join(sorted(homeless))}.")
    return {name: results[name] for name in names if name in results}


def summary(results: Results) -> str:
    """How many goals are met, those that some round has missed with what was reached, and what was measured."""
    claims = all_claims(results)
    if not claims:
        return ""
    counts = {verdict: [claim.verdict for claim in claims].count(verdict) for verdict in (MET, IN_MEDIAN, SHORT)}
    counted = (
        f"Of {len(claims)} goals, {counts[MET]} are met, {counts[IN_MEDIAN]} only in the median, {counts[SHORT]} not."
    )
    lines = [
        (claim.title, _reached(claim), goal_text(claim.goal, claim.unit), _emphasized(claim.verdict))
        for verdict in (SHORT, IN_MEDIAN)
        for claim in claims
        if claim.verdict == verdict
    ]
    parts = [counted, _table(("", "reached", "goal", ""), lines), _origins(results)]
    return "\n\n".join(part for part in parts if part)


def all_claims(results: Results) -> list[Claim]:
    """What the goals of all groups are about."""
    return [claim for group in results.values() for row in group.rows for claim in row.claims().values()]


def _reached(claim: Claim) -> str:
    """The median of the rounds, and their range."""
    if claim.goal.absolute:
        return _shown(claim.readings, claim.unit)
    return f"{_shown(claim.readings)} of {claim.reference}"


def _emphasized(verdict: str) -> str:
    return f"**{verdict}**" if verdict == SHORT else verdict


def goal_text(goal: Goal, unit: str) -> str:
    """A goal in words: `≥ 0.8`."""
    value = _value(goal.value, unit) if goal.absolute else _number(goal.value)
    return f"{'≤' if goal.at_most else '≥'} {value}"


def section(groups: Sequence[Group]) -> str:
    """The tables and notes of the groups of one place."""
    rows = [row for group in groups for row in group.rows]
    notes = "\n".join(f"- {row.title}: {row.note}" for row in rows if row.note)
    parts = [_against_reference(rows), _comparison(rows), notes]
    return "\n\n".join(part for part in parts if part)


def _against_reference(rows: Sequence[Row]) -> str:
    """Rows with a reference or a goal of their own, with the processor time that a request takes."""
    lines = []
    for row in rows:
        if not row.is_comparison:
            ratios = row.ratios()
            reference = f"{row.reference}: {_value(median(row.samples[row.reference]), row.unit)}" if ratios else ""
            ratio = _shown(ratios) if ratios else ""
            goals = [
                f"{goal_text(claim.goal, row.unit)}, {_emphasized(claim.verdict)}" for claim in row.claims().values()
            ]
            lines.append(
                (row.title, _shown(row.samples[PRODUCT], row.unit), reference, ratio, "".join(goals), _costs(row))
            )
    return _table(("", PRODUCT, "reference", "ratio", "goal", "processor time"), lines)


def _comparison(rows: Sequence[Row]) -> str:
    """What else was measured in the same rounds, a column for each, with the factor of the product where it is one."""
    lines = {
        row.name: [name for name in row.samples if row.is_comparison or name not in (PRODUCT, row.reference)]
        for row in rows
    }
    columns = list(dict.fromkeys(name for names in lines.values() for name in names))
    cells = [
        (
            row.title,
            *(_cell(row, name) if name in lines[row.name] else "" for name in columns),
            goal_text(row.goal, row.unit) if row.goal and row.is_comparison else "",
        )
        for row in rows
        if lines[row.name]
    ]
    return _table(("", *columns, "goal"), cells)


def _cell(row: Row, name: str) -> str:
    """One sample: its median with the factor of the product, or with its range and how it reached the goal."""
    readings, claim = row.samples[name], row.claims().get(name)
    if PRODUCT in row.samples and name not in (PRODUCT, row.reference):
        ratios = row.ratios(name)
        factors = [1 / ratio for ratio in ratios] if row.unit in _LOWER_IS_BETTER else ratios
        return f"{_value(median(readings), row.unit)} ({_number(median(factors))}×)"
    verdict = f", {_emphasized(claim.verdict)}" if claim and claim.verdict != MET else ""
    return f"{_shown(readings, row.unit)}{verdict}"


def _costs(row: Row) -> str:
    """Processor time per request of the product, and of other processes with their names."""
    names = sorted(row.costs, key=lambda name: name != PRODUCT)
    return ", ".join(f"{'' if name == PRODUCT else f'{name} '}{_number(median(row.costs[name]))} µs" for name in names)


def _origins(results: Results) -> str:
    """The revisions and the machines of the groups; usually one of each."""
    revisions: dict[tuple[str, int], list[str]] = {}
    machines = []
    for name, group in results.items():
        revisions.setdefault((group.revision, group.rounds), []).append(name)
        machine = group.machine
        versions = ", ".join(f"{program} {version}" for program, version in machine.versions.items())
        text = f"{machine.processor}, {machine.cores} cores, {machine.memory_gib:.0f} GiB; {versions}"
        if text not in machines:
            machines.append(text)
    lines = []
    for (revision, rounds), names in revisions.items():
        state = " **with local changes**" if revision.endswith(CHANGED) else ""
        which = f": {', '.join(names)}" if len(revisions) > 1 else ""
        lines.append(f"{rounds} round{'s' * (rounds > 1)} at revision {revision.removesuffix(CHANGED)}{state}{which}.")
    return "\n".join([*lines, *(f"Measured on: {text}." for text in machines)])


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, or nothing without lines. Columns without content are left out."""
    filled = list(lines)
    if not filled:
        return ""
    columns = [index for index, name in enumerate(header) if index == 0 or any(line[index] for line in filled)]
    rule = ["---" if index == 0 else "--:" for index in columns]
    rows = [[header[index] for index in columns], rule, *([line[index] for index in columns] for line in filled)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shown(readings: Sequence[float], unit: str = "") -> str:
    """The median of readings and, if there are several, the smallest and the largest in brackets."""
    limits = f" ({_number(min(readings))}–{_number(max(readings))})" if len(readings) > 1 else ""
    return f"{_value(median(readings), unit)}{limits}"


def _value(value: float, unit: str) -> str:
    return f"{_number(value)}{'' if unit.startswith('/') else ' '}{unit}".rstrip()


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 100:
        digits = len(f"{value:.0f}")
        return f"{round(value, min(0, 3 - digits)):,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.6f}".rstrip("0")
