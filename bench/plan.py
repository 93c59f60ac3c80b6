"""How much a run measures, where it works, and how its rounds are interleaved."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.machine import BenchError, Cores, cores, program

PETSTORE = Path(sys.executable).parent / "petstore"

Name = TypeVar("Name")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Plan:
    """One run: `rounds` of loads that last `seconds` each, with scratch files in `folder`."""

    rounds: int
    seconds: int
    quick: bool
    folder: Path
    cores: Cores = field(default_factory=cores)

    def size(self, full: int, quick: int) -> int:
        """A quantity, reduced in a quick run."""
        return quick if self.quick else full

    def pick(self, full: Sequence[int], quick: Sequence[int]) -> list[int]:
        """Several quantities, fewer in a quick run."""
        return list(quick if self.quick else full)


def interleaved(rounds: int, loads: Mapping[Name, Callable[[], Result]]) -> dict[Name, list[Result]]:
    """Run every load once per round, and start each round with another one, so that drift affects all alike."""
    readings: dict[Name, list[Result]] = {name: [] for name in loads}
    names = list(loads)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            readings[name].append(loads[name]())
    return readings


def need(*programs: str) -> None:
    """Refuse to go on without these programs."""
    missing = [name for name in programs if program(name) is None]
    if missing:
        raise BenchError(f"Not installed: {', '.join(missing)}. Run `make bench-setup`.")


def run(command: Sequence[str | Path], **options: object) -> str:
    """Run a command that must succeed; return its standard output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise BenchError(f"{Path(command[0]).name} {' '.join(map(str, command[1:3]))}: {done.stderr.strip()[-2000:]}")
    return str(done.stdout)


def progress(text: str) -> None:
    """Report what is being measured, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
