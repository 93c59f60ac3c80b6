"""How much a run does, and what each check reports."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple


class Result(NamedTuple):
    """What one check with one seed has shown; `problems` are the promises that did not hold."""

    check: str
    seed: int
    shown: str
    problems: list[str]

    def __str__(self) -> str:
        verdict = "ok" if not self.problems else f"{len(self.problems)} PROBLEMS: {'; '.join(self.problems[:5])}"
        return f"{self.check}, seed {self.seed}: {self.shown}: {verdict}"


@dataclass(frozen=True)
class Plan:
    """The seeds, and what a run of each does: so many images, kills, seconds, requests, rounds and changes."""

    seeds: tuple[int, ...] = (1,)
    images: int = 50
    kills: int = 20
    seconds: float = 20.0
    requests: int = 100_000
    rounds: int = 1000
    changes: int = 10_000


Check = Coroutine[Any, Any, Result]
