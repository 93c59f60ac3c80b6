"""`make torture`: run groups of checks, a line for each check and seed; the status is 1 if a promise did not hold."""

import argparse
import asyncio
import importlib
import signal
import sys
import time
import traceback

from torture.plan import Plan, Result

GROUPS = ("power", "histories", "overload", "resources", "time", "creation", "copies")


def main() -> int:
    """Carry out the command line; return the exit status."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended and files deleted
    names = options.only.replace(",", " ").split() or GROUPS
    if unknown := set(names) - set(GROUPS):
        print(f"torture: unknown: {', '.join(unknown)}. The groups are {', '.join(GROUPS)}.", file=sys.stderr)
        return 2
    counts = {name: value for name, value in vars(options).items() if name not in ("only", "seeds")}
    plan = Plan(_seeds(options.seeds), **counts)
    failed = False
    for name in names:
        for check in importlib.import_module(f"torture.groups.{name}").checks(plan):
            began = time.monotonic()
            try:
                result = asyncio.run(check)
            except Exception:  # noqa: BLE001 - of one check: the others go on
                result = Result(check.__name__, 0, "not finished", [traceback.format_exc()])
            failed = failed or bool(result.problems)
            print(f"{name}: {result} ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=(__doc__ or "").strip())
    parser.add_argument("--only", default="", metavar="GROUPS", help=f"with commas between: {', '.join(GROUPS)}")
    parser.add_argument("--seeds", default="1", help="such as 1-10, or 3,5,8")
    parser.add_argument("--images", type=int, default=Plan.images, help="crash images of each recording")
    parser.add_argument("--kills", type=int, default=Plan.kills, help="kills of PostgreSQL for each seed")
    parser.add_argument("--seconds", type=float, default=Plan.seconds, help="of each load")
    parser.add_argument("--requests", type=int, default=Plan.requests, help="of the hostile variation")
    parser.add_argument("--rounds", type=int, default=Plan.rounds, help="of processes that create one store together")
    parser.add_argument("--changes", type=int, default=Plan.changes, help="of orders while copies are kept")
    return parser.parse_args()


def _seeds(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


if __name__ == "__main__":
    sys.exit(main())
