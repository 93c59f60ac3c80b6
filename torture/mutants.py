"""`make mutants`: cosmic-ray changes a sample of places in the product, one at a time; a test should fail each time.

It runs in a clone of the last commit with another virtual environment, so that servers, workers and commands that
tests start are changed too, and a run that is interrupted leaves no change in the checkout.
"""

import argparse
import random
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CLONE = ROOT / "build" / "mutants"
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SCORE = 0.95
"""The part of a sample that tests should notice."""

_CONFIGURATION = """
[cosmic-ray]
module-path = {sources}
timeout = 900.0
test-command = "{command}"
[cosmic-ray.distributor]
name = "local"
[cosmic-ray.filters.operators-filter]
exclude-operators = {excluded}
"""
_COMMAND = ".venv/bin/python -m pytest -x -q -n 2 -m 'not system' -p no:cacheprovider --timeout=60"


def files(group: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The sources and the test files of a group, below ROOT. Raises LookupError if one of its names is for no file."""
    folder = group.get("folder", "server")
    sources = [f"{folder}/src/petstore_{folder}/{name}" for name in group["sources"]]
    tests = []
    for name in group["tests"].split():
        if not (found := sorted(ROOT.glob(f"{folder}/tests/test_{name}.py"))):
            raise LookupError(name)
        tests += [str(path.relative_to(ROOT)) for path in found]
    if missing := [source for source in sources if not (ROOT / source).exists()]:
        raise LookupError(missing[0])
    return sources, list(dict.fromkeys(tests))


def _is_good(name: str, count: int, seed: int) -> bool:
    """Try a sample of a group's mutants; print those that no test notices; return whether enough were noticed."""
    from cosmic_ray.tools.filters.operators_filter import OperatorsFilter
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

    sources, tests = files(TABLE["groups"][name])
    configuration, session = CLONE / f"{name}.toml", CLONE / f"{name}.sqlite"
    command = " ".join([_COMMAND, *tests])
    configuration.write_text(
        _CONFIGURATION.format(sources=sources, command=command, excluded=TABLE["operators"]["excluded"])
    )
    subprocess.run(["cosmic-ray", "init", configuration, session, "--force"], cwd=CLONE, check=True)
    subprocess.run(["cosmic-ray", "baseline", configuration], cwd=CLONE, check=True)  # without a change, all pass
    OperatorsFilter().main([str(session), str(configuration)])
    with use_db(session, WorkDB.Mode.open) as work:
        left_out = sorted(work.pending_work_items, key=lambda item: _place(*item.mutations))
        random.Random(seed).shuffle(left_out)
        skipped = WorkResult(worker_outcome=WorkerOutcome.SKIPPED)
        work.set_multiple_results([each.job_id for each in left_out[count:]], skipped)
        subprocess.run(["cosmic-ray", "exec", configuration, session], cwd=CLONE, check=True)
        tried = [result for _, result in work.results if result.worker_outcome != WorkerOutcome.SKIPPED]
    missed = [result for result in tried if result.test_outcome != TestOutcome.KILLED]
    for result in missed:
        print(f"{name}: {result.test_outcome}\n{result.diff}", flush=True)
    print(f"{name}, seed {seed}: {len(tried) - len(missed)} of {len(tried)} mutants noticed", flush=True)
    return len(missed) <= (1 - SCORE) * len(tried)


def _place(change: Any) -> tuple[Any, ...]:
    """Where a mutant is and what it changes: an order that another run repeats."""
    return str(change.module_path), change.start_pos, change.operator_name, change.occurrence


def main() -> int:
    """Carry out the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torture.mutants", description=__doc__)
    known = ", ".join(TABLE["groups"])
    parser.add_argument("--only", default="", metavar="GROUPS", help=f"with commas between: {known}")
    parser.add_argument("--count", type=int, default=20, help="mutants of each group")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    options = parser.parse_args()
    names = options.only.replace(",", " ").split() or list(TABLE["groups"])
    if unknown := set(names) - set(TABLE["groups"]):
        parser.error(f"unknown: {', '.join(unknown)}. The groups are {known}.")
    if not CLONE.exists():
        subprocess.run(["git", "clone", "-q", ROOT, CLONE], check=True)
    subprocess.run(["git", "fetch", "-q", ROOT, "HEAD"], cwd=CLONE, check=True)
    subprocess.run(["git", "checkout", "-qf", "FETCH_HEAD"], cwd=CLONE, check=True)
    subprocess.run(["make", "-s", ".venv/.dev"], cwd=CLONE, check=True)
    good = [_is_good(name, options.count, options.seed) for name in names]  # of all, before the status
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
