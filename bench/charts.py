"""Charts of results, as SVG files that change only when the results do."""

import math
import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.report import all_claims
from bench.results import IN_MEDIAN, MET, SHORT, Claim, Curve, Results

_INK, _GRID = "#24292f", "#d8dee4"
_COLORS = {MET: "#1a7f64", IN_MEDIAN: "#d4a72c", SHORT: "#bc4c00"}
_LINES = ("#0b6bcb", "#bc4c00", "#1a7f64", "#8250df", "#57606a", "#9a6700")
_WIDTH = 8.0  # inches
_VISIBLE = 100  # the largest reading is at most so many times the smallest where the y axis is linear
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "petstore",  # the same identifiers each time
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}


def draw(results: Results, folder: Path) -> None:
    """Draw the charts over all groups, and one for each curve, into a folder."""
    with mpl.rc_context(_STYLE):
        claims = all_claims(results)
        if claims:
            _save(_goals(claims), folder, "goals")
        for group in results.values():
            for curve in group.curves:
                _save(_curve(curve), folder, curve.name)


def _goals(claims: list[Claim]) -> Figure:
    """What was reached, as a share of each goal: right of the line is better."""
    medians = [statistics.median(claim.readings) for claim in claims]
    shares = [
        (claim.title, claim.goal.value / median if claim.goal.at_most else median / claim.goal.value)
        for claim, median in zip(claims, medians, strict=True)
    ]
    figure = Figure(figsize=(_WIDTH, 0.9 + 0.27 * len(shares)), layout="constrained")
    axes = figure.subplots()
    names, lengths = [name.replace("`", "") for name, _ in shares], [length for _, length in shares]
    bars = axes.barh(range(len(shares)), lengths, color=[_COLORS[claim.verdict] for claim in claims], height=0.66)
    axes.set_yticks(range(len(shares)), names)
    axes.bar_label(bars, [f"{length:.2g}" for length in lengths], padding=4)
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, *lengths) * 0.9, max(2.0, *lengths) * 1.6)
    axes.invert_yaxis()
    axes.set_title("Reached, as a share of the goal (green: in every round, yellow: in the median)")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, axis="x")
    axes.axvline(1, color=_INK, linewidth=1)
    axes.set_xlabel("reached ÷ goal, or goal ÷ reached for a goal with ≤ (logarithmic); more is better")
    return figure


def _curve(curve: Curve) -> Figure:
    """A line for each series over a logarithmic x axis, with the range of the readings behind it.

    The y axis begins at 0, unless the readings differ by so much that small ones could not be seen.
    """
    figure = Figure(figsize=(_WIDTH, 3.8), layout="constrained")
    axes = figure.subplots()
    for color, (name, points) in zip(_LINES, curve.series.items(), strict=False):
        sizes = sorted(points)
        medians = [statistics.median(points[size]) for size in sizes]
        low, high = [min(points[size]) for size in sizes], [max(points[size]) for size in sizes]
        axes.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
        axes.plot(sizes, medians, color=color, marker="o", markersize=4, linewidth=1.6, label=name)
    axes.set_xscale("log")
    readings = [reading for points in curve.series.values() for found in points.values() for reading in found]
    logarithmic = max(readings) > _VISIBLE * min(readings)
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(10 ** math.floor(math.log10(min(readings))), 10 ** math.ceil(math.log10(max(readings) * 1.01)))
    else:
        axes.set_ylim(0, max(readings) * 1.05)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.minorticks_off()
    axes.set_xlabel(curve.x)
    axes.set_ylabel(f"{curve.unit} (logarithmic)" if logarithmic else curve.unit)
    axes.set_title(curve.title)
    axes.grid(visible=True)
    if len(curve.series) > 1:
        axes.legend(loc="best")
    return figure


def _save(figure: Figure, folder: Path, name: str) -> None:
    metadata = {"Date": None, "Creator": None}
    figure.savefig(folder / f"performance-{name}.svg", metadata=metadata, facecolor="white")
