"""What importing the client costs, beside importing the two libraries that it stands on.

    .venv/bin/python bench/client_import.py [--rounds 15]

Processor time of fresh interpreters, interleaved; medians with their spread.
"""

import argparse
import statistics
import subprocess
import sys

LIBRARIES = "import httpx2, msgspec"
CLIENT = "import petstore_client"


def seconds(statement: str) -> float:
    """Processor seconds of the statement in an interpreter of its own."""
    code = f"import time; began = time.process_time(); {statement}; print(time.process_time() - began)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = [(seconds(LIBRARIES), seconds(CLIENT)) for _ in range(parser.parse_args().rounds)]
    for name, figures in zip((LIBRARIES, CLIENT), zip(*rounds, strict=True), strict=True):
        median, low, high = statistics.median(figures), min(figures), max(figures)
        print(f"{name}: {median * 1000:.0f} ms ({low * 1000:.0f}–{high * 1000:.0f})")
    ratios = [client / libraries for libraries, client in rounds]
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})")


if __name__ == "__main__":
    main()
