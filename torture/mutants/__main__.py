"""`make mutants`: try the mutants of each group, or a sample.

The status is 1 if too many were not noticed, or if an explanation is stale: its mutant is not there, or was noticed.
"""

import argparse
import importlib
import random
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

from testing.postgres_programs import share_empty_servers
from torture.mutants.attempts import attempts
from torture.mutants.changes import Mutant, mutants
from torture.mutants.groups import GROUPS, Group, files

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


def explanations() -> set[tuple[str, str]]:
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
    share_empty_servers()  # each child would make one, and leave it when it is killed
    good = [_is_good(name, GROUPS[name], options) for name in names]  # of all, before the status
    return 0 if all(good) else 1


def _is_good(name: str, group: Group, options: argparse.Namespace) -> bool:
    """Try the mutants of a group, and without `count` those that are explained; print what is wrong."""
    found = [mutant for source in group.sources for path in files(Path(source)) for mutant in mutants(path)]
    explained = expanded(found, explanations())
    left = [mutant for mutant in found if _key(mutant) not in explained]
    stale = missing(found, explained)
    for each in stale:
        print(f"{name}: explained, but not there: {each}", flush=True)
    chosen = [mutant for mutant in left if options.match in str(mutant)]
    if 0 < options.count < len(chosen):
        sample = random.Random(options.seed).sample(chosen, options.count)
        chosen = sorted(sample, key=lambda mutant: (mutant.path, mutant.line))
    tried = len(chosen)
    if not options.count:
        chosen += [mutant for mutant in found if _key(mutant) in explained and options.match in str(mutant)]
    began = time.monotonic()
    results: Counter[str] = Counter()
    for mutant, result in attempts(group, chosen):
        if _key(mutant) not in explained:
            results[result] += 1
            if result != "killed":
                print(f"{name}: {result}: {mutant}", flush=True)
        elif result in ("killed", "timeout"):
            stale.append(str(mutant))
            print(f"{name}: explained, but noticed: {mutant}", flush=True)
    noticed = results["killed"] + results["timeout"]
    score = noticed / tried if tried else 1.0
    print(
        f"{name}, seed {options.seed}: {noticed} of {tried} mutants noticed, {score:.1%} "
        f"({len(found)} in all, {len(found) - len(left)} explained; {time.monotonic() - began:.0f} s)",
        flush=True,
    )
    return score >= SCORE and not stale


def expanded(found: list[Mutant], explained: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The explanations, with those that end in `*` replaced by one for each mutant whose text begins so, if any."""
    keys = set()
    for file, text in explained:
        begin = text.removesuffix("*")
        ours = {_key(each) for each in found if _name(each) == file and each.text.startswith(begin)}
        keys |= ours if begin != text and ours else {(file, text)}
    return keys


def missing(found: list[Mutant], explained: set[tuple[str, str]]) -> list[str]:
    """The explanations for the files of these mutants that are for none of them."""
    places = {_name(mutant) for mutant in found}
    return [f"{file}: {text}" for file, text in sorted(explained - set(map(_key, found))) if file in places]


def _key(mutant: Mutant) -> tuple[str, str]:
    return _name(mutant), mutant.text


def _name(mutant: Mutant) -> str:
    """The file of a mutant and its directory."""
    return "/".join(mutant.path.parts[-2:])


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
