"""`make mutants`: try the mutants of each group, or a sample; the status is 1 if too many were not noticed."""

import argparse
import importlib
import random
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

from torture.mutants.attempts import attempts
from torture.mutants.changes import Mutant, mutants
from torture.mutants.groups import GROUPS, Group

SCORE = 0.95
"""The part of a group's mutants that tests must notice, without those that are explained."""

EXPLAINED = Path(__file__).with_name("equivalent.toml")
"""Mutants that behave like the product, with the reason."""

_LIBRARIES = (
    "anyio",
    "apsw",
    "httpx2",
    "hypothesis",
    "msgspec",
    "redis.asyncio",
    "schemathesis",
    "uvloop",
)


def _explained() -> set[tuple[str, str]]:
    """The file and the text of each mutant that is explained."""
    return {(file, text) for file, reasons in tomllib.loads(EXPLAINED.read_text("utf-8")).items() for text in reasons}


def main() -> int:
    """Carry out the command line; return the exit status."""
    options = _options()
    names = options.only.replace(",", " ").split() or list(GROUPS)
    if unknown := set(names) - set(GROUPS):
        print(f"mutants: unknown: {', '.join(unknown)}. The groups are {', '.join(GROUPS)}.", file=sys.stderr)
        return 2
    for name in _LIBRARIES:
        importlib.import_module(name)  # once, for all children
    scores = [_score(name, GROUPS[name], options) for name in names]  # of all, before the status
    return 1 if min(scores) < SCORE else 0


def _score(name: str, group: Group, options: argparse.Namespace) -> float:
    """Try the mutants of a group; print what was not noticed; return the part that was."""
    found = [mutant for source in group.sources for path in files(Path(source)) for mutant in mutants(path)]
    explained = _explained()
    left = [mutant for mutant in found if (_name(mutant), mutant.text) not in explained]
    for file, text in explained - {(_name(mutant), mutant.text) for mutant in found}:
        if file in map(_name, found):
            print(f"{name}: explained, but not there: {file}: {text}")
    chosen = [mutant for mutant in left if options.match in str(mutant)]
    if 0 < options.count < len(chosen):
        sample = random.Random(options.seed).sample(chosen, options.count)
        chosen = sorted(sample, key=lambda mutant: (mutant.path, mutant.line))
    began = time.monotonic()
    results: Counter[str] = Counter()
    for mutant, result in attempts(group, chosen):
        results[result] += 1
        if result != "killed":
            print(f"{name}: {result}: {mutant}", flush=True)
    noticed = results["killed"] + results["timeout"]
    score = noticed / len(chosen) if chosen else 1.0
    print(
        f"{name}, seed {options.seed}: {noticed} of {len(chosen)} mutants noticed, {score:.1%} "
        f"({len(found)} in all, {len(found) - len(left)} explained; {time.monotonic() - began:.0f} s)",
        flush=True,
    )
    return score


def _name(mutant: Mutant) -> str:
    """The file of a mutant and its directory."""
    return "/".join(mutant.path.parts[-2:])


def files(source: Path) -> list[Path]:
    """The files of a source, which is one or a directory."""
    source = source.resolve()
    return sorted([*source.glob("*.py"), *source.glob("*.lua")]) if source.is_dir() else [source]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m torture.mutants", description="Change the product; tests should fail."
    )
    parser.add_argument("--only", default="", metavar="GROUPS", help=f"with commas between: {', '.join(GROUPS)}")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--count", type=int, default=0, help="mutants of each group; 0: all")
    parser.add_argument("--match", default="", help="only those whose line contains this text")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
