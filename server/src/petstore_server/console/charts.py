"""Bar charts as the templates draw them: SVG rectangles in a fixed coordinate system, and the values as a table."""

from collections.abc import Sequence
from math import ceil, log10
from typing import NamedTuple

WIDTH, HEIGHT = 600, 120
"""Of the SVG's coordinate system; the page scales it."""

_GAP = 0.25  # of a bar's place


class Series(NamedTuple):
    """One kind of value: its name in the legend, and the CSS class of its bars."""

    name: str
    style: str


class Bar(NamedTuple):
    """One place on the horizontal axis, and a value for each series, stacked; without values if they are not known."""

    label: str
    values: tuple[float, ...]


class Rectangle(NamedTuple):
    """A part of a bar in the coordinate system, y downwards; `style` is its series's class."""

    x: float
    y: float
    width: float
    height: float
    style: str


class Chart(NamedTuple):
    """A chart ready to be drawn. `limit` is a value shown as a line at `limit_y`; `top` is the value at the top.

    `limit_above` is a limit too far above all values to be drawn: the bars would vanish.
    """

    title: str
    series: tuple[Series, ...]
    bars: Sequence[Bar]
    rectangles: list[Rectangle]
    top: int
    limit: int | None
    limit_y: float
    limit_above: int | None

    @property
    def is_empty(self) -> bool:
        """Whether every value is zero."""
        return not self.rectangles


def chart(title: str, series: tuple[Series, ...], bars: Sequence[Bar], limit: int | None = None) -> Chart:
    """Lay out a stacked bar chart."""
    highest = max((sum(bar.values) for bar in bars), default=0)
    shown_limit = limit if limit is not None and limit <= 4 * max(highest, 1) else None
    top = _round_up(max(highest, shown_limit or 0))
    place = WIDTH / max(1, len(bars))
    rectangles: list[Rectangle] = []
    for index, bar in enumerate(bars):
        below = 0.0
        for value, each in zip(bar.values, series, strict=False):
            if value > 0:
                height = max(1.0, value / top * HEIGHT)
                below += height
                x, width = place * (index + _GAP / 2), place * (1 - _GAP)
                rectangles.append(
                    Rectangle(round(x, 2), round(HEIGHT - below, 2), round(width, 2), round(height, 2), each.style)
                )
    limit_y = HEIGHT - (shown_limit or 0) / top * HEIGHT
    limit_above = limit if shown_limit is None else None
    return Chart(title, series, bars, rectangles, top, shown_limit, round(limit_y, 2), limit_above)


def _round_up(value: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, … that is not below the value."""
    if value <= 1:
        return 1
    magnitude: int = 10 ** int(log10(value))
    return next(step * magnitude for step in (1, 2, 5, 10) if step * magnitude >= ceil(value))
