"""`make bench`: measure groups of benchmarks, store the results, and write them into the documentation."""

import argparse
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench import report
from bench.groups import GROUPS
from bench.machine import CHANGED, ROOT, BenchError, describe, revision
from bench.plan import Plan, need, progress
from bench.results import Group, read, write

RESULTS = ROOT / "bench" / "results.json"
BUSY = 0.5  # load average from which a warning is due


def main() -> int:
    """Carry out the command line; return the exit status."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended and files deleted
    try:
        names, commit = _chosen(options.only), revision()
        published = options.report or not (options.quick or commit.endswith(CHANGED))
        documents = report.documents(ROOT, None if published else ROOT / "build" / "bench")
        file = RESULTS if published else documents.folder / "results.json"
        if not published and not options.quick:
            progress("the work tree has local changes: results go to build/bench; commit to publish them")
        failed = [] if options.report else _measure(names, options, file, commit)
        report.write(documents, read(file))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    progress(f"results in {file.relative_to(ROOT)}, tables in {' and '.join(report.PAGES)}")
    if failed:
        print(f"bench: not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").strip())
    parser.add_argument("--only", default="", metavar="GROUPS", help=f"with commas between: {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, help="rounds of each load (5; 1 in a quick run)")
    parser.add_argument("--seconds", type=int, help="seconds of each load (2; 1 in a quick run)")
    parser.add_argument("--quick", action="store_true", help="try everything with small counts, in build/bench")
    parser.add_argument("--report", action="store_true", help="measure nothing; write the documents from the results")
    return parser.parse_args()


def _chosen(only: str) -> list[str]:
    names = [name for name in only.replace(",", " ").split() if name] or list(GROUPS)
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        raise BenchError(f"Unknown: {', '.join(unknown)}. The groups are {', '.join(GROUPS)}.")
    return names


def _measure(names: list[str], options: argparse.Namespace, file: Path, commit: str) -> list[str]:
    """Measure the groups, store each as soon as it is complete; return the names of those that failed."""
    need(*{program for name in names for program in GROUPS[name].programs})
    machine = describe()
    if machine.load_average > BUSY and not options.quick:
        progress(f"warning: the load average is {machine.load_average}; results from a busy machine are not reliable")
    failed = []
    with tempfile.TemporaryDirectory(prefix="petstore-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        quick = options.quick
        plan = Plan(options.rounds or (1 if quick else 5), options.seconds or (1 if quick else 2), quick, folder)
        for group in names:
            measured_at, began = datetime.now(UTC), time.monotonic()
            try:
                rows = GROUPS[group].measure(plan)
            except BenchError as error:
                progress(f"{group} failed: {error}")
                failed.append(group)
                continue
            took = time.monotonic() - began
            at = f"{measured_at:%Y-%m-%d %H:%M} UTC"
            found = Group(GROUPS[group].title, at, commit, plan.rounds, took, machine, rows)
            write(file, {group: found})
            print(f"\n{found.title}\n\n{report.section([found])}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
