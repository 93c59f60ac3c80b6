"""What a run measures, in the form that is stored as JSON and that the report reads."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

PRODUCT = "petstore"
"""The name of the product's readings among the samples of a row."""


MET, IN_MEDIAN, SHORT = "met", "met in the median", "short"
"""How a goal was reached: in every round, in the median of the rounds, or not."""


class Goal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row should reach: a bound on its ratio to the reference, or on its own value."""

    value: float
    at_most: bool = False
    absolute: bool = False

    def met_by(self, reached: float) -> bool:
        """Whether one reading satisfies the bound."""
        return reached <= self.value if self.at_most else reached >= self.value

    def verdict(self, readings: Sequence[float]) -> str:
        """How the rounds reached the goal."""
        if not readings:
            return SHORT
        if all(map(self.met_by, readings)):
            return MET
        return IN_MEDIAN if self.met_by(statistics.median(readings)) else SHORT


class Claim(NamedTuple):
    """What a goal is about: the readings of the rounds, or their ratios to a reference."""

    title: str
    goal: Goal
    unit: str
    reference: str
    readings: list[float]

    @property
    def verdict(self) -> str:
        return self.goal.verdict(self.readings)


class Row(msgspec.Struct, omit_defaults=True):
    """One line of the tables: readings of the product and of others, one per round, in `unit`.

    A row without a reference compares its samples with each other; without the product's, each is one of its variants,
    to which the goal applies. `costs` are microseconds of processor time per request, by process.
    """

    name: str
    title: str
    unit: str
    samples: dict[str, list[float]]
    reference: str = ""
    goal: Goal | None = None
    costs: dict[str, list[float]] = msgspec.field(default_factory=dict)
    note: str = ""

    @property
    def is_comparison(self) -> bool:
        """Whether the row is shown with a column for each sample."""
        return not self.reference and [*self.samples] != [PRODUCT]

    def ratios(self, other: str = "") -> list[float]:
        """The product's readings divided by those of another (by default the reference), round by round."""
        others = self.samples.get(other or self.reference, [])
        mine = self.samples.get(PRODUCT, [])
        return [own / reading for own, reading in zip(mine, others, strict=True)] if others else []

    def claims(self) -> dict[str, Claim]:
        """What the goal is about, by the sample that it applies to."""
        if self.goal is None:
            return {}
        if PRODUCT in self.samples:
            readings = self.samples[PRODUCT] if self.goal.absolute else self.ratios()
            reference = "" if self.goal.absolute else self.reference
            return {PRODUCT: Claim(self.title, self.goal, self.unit, reference, readings)}
        return {
            name: Claim(f"{self.title}, {name}", self.goal, self.unit, "", readings)
            for name, readings in self.samples.items()
        }


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


Results = dict[str, Group]


def read(file: Path) -> Results:
    """Read a results file; a missing one holds no groups."""
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else {}


def write(file: Path, results: Results) -> None:
    """Write a results file, replacing the groups that `results` names and keeping the others. A group is a line."""
    merged = json.loads(msgspec.json.encode(read(file) | results), parse_float=_rounded)
    groups = [f"{json.dumps(name)}: {json.dumps(group, ensure_ascii=False)}" for name, group in merged.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{\n" + ",\n".join(groups) + "\n}\n")


def _rounded(reading: str) -> float:
    """Five significant digits, so that the file stays small."""
    return float(f"{float(reading):.5g}")
