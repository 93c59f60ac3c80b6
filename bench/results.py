"""What a run measures, in the form that is stored as JSON and that the report reads."""

import statistics
from pathlib import Path

import msgspec

PRODUCT = "petstore"
"""The name of the product's readings among the samples of a row."""

BASELINE = "baseline"
"""The name of the readings of another version of the product."""

EVENT_LOOP = "uvloop, the same bytes"
"""The name of the readings of a protocol that sends fixed bytes: what the event loop allows."""

RATIOS = (BASELINE, EVENT_LOOP)
"""Readings that are shown as ratios: they are not of services that people would pick instead."""


class Goal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row should reach: a bound on its ratio to the reference, or on its own value."""

    value: float
    aim: float | None = None
    at_most: bool = False
    absolute: bool = False

    def met_by(self, reached: float) -> bool:
        """Whether a median satisfies the bound (`aim` is more than the bound and does not count)."""
        return reached <= self.value if self.at_most else reached >= self.value


class Row(msgspec.Struct, omit_defaults=True):
    """One line of the tables: readings of the product and of others, one per round, in `unit`.

    `costs` are microseconds of processor time per request, by process. `missing` says why a row has no readings.
    """

    name: str
    title: str
    unit: str
    samples: dict[str, list[float]] = msgspec.field(default_factory=dict)
    reference: str = ""
    goal: Goal | None = None
    costs: dict[str, list[float]] = msgspec.field(default_factory=dict)
    note: str = ""
    missing: str = ""

    def ratios(self, other: str = "") -> list[float]:
        """The product's readings divided by those of another (by default the reference), round by round."""
        others = self.samples.get(other or self.reference, [])
        mine = self.samples.get(PRODUCT, [])
        return [own / reading for own, reading in zip(mine, others, strict=True)] if others else []

    def reached(self) -> float | None:
        """The median that the goal is about, or None if it was not measured."""
        absolute = self.goal is not None and self.goal.absolute
        readings = self.samples.get(PRODUCT, []) if absolute else self.ratios()
        return statistics.median(readings) if readings else None


class Curve(msgspec.Struct, omit_defaults=True):
    """Readings over a growing quantity: for each series, the readings of each round at each size."""

    name: str
    title: str
    x: str
    unit: str
    series: dict[str, dict[int, list[float]]] = msgspec.field(default_factory=dict)
    note: str = ""


class Machine(msgspec.Struct):
    """Where and with what a group was measured."""

    processor: str
    cores: int
    memory_gib: float
    load_average: float
    versions: dict[str, str]


class Group(msgspec.Struct):
    """All that one group of benchmarks measured in one run."""

    title: str
    measured_at: str
    revision: str
    rounds: int
    took_seconds: float
    machine: Machine
    rows: list[Row]
    curves: list[Curve] = msgspec.field(default_factory=list)


Results = dict[str, Group]


def read(file: Path) -> Results:
    """Read a results file; a missing one holds no groups."""
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else {}


def write(file: Path, results: Results) -> None:
    """Write a results file, replacing the groups that `results` names and keeping the others."""
    merged = read(file) | results
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(_rounded(merged)), indent=1) + b"\n")


def _rounded(value: object) -> object:
    """The same content with readings of five significant digits, so that the file stays small."""
    plain = msgspec.to_builtins(value, str_keys=True)

    def visit(part: object) -> object:
        if isinstance(part, dict):
            return {name: visit(inner) for name, inner in part.items()}
        if isinstance(part, list):
            return [visit(inner) for inner in part]
        return float(f"{part:.5g}") if isinstance(part, float) else part

    return visit(plain)
