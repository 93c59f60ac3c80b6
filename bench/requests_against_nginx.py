"""What a request costs, as a ratio to nginx sending the same bytes in the same run.

    .venv/bin/python bench/requests_against_nginx.py [--rounds 5] [--seconds 2]

Needs Debian's packages nginx-light and wrk. One nginx worker and one `petstore serve` are pinned to one core, wrk to
another; rounds are interleaved, and medians are shown with their spread. Authentication, limits, bans, headers and
metrics are on. Cancels are measured against nothing: their reference, pgbench, comes with the PostgreSQL engine.
"""

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "server" / "tests"))

from support.load import send_all
from support.process import UNLIMITED, Server, new_key, petstore, serving

TARGET = "/v1/store/orders"
SIZES = (10, 1_000, 100_000)
SERVER_CORE, LOAD_CORE = "0", "1"
NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile off; output_buffers 2 512k; keepalive_requests 100000000; types {{ }}
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5; default_type application/json;
    server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


def order_lines(number: int) -> str:
    template = '{{"id":{0},"petId":{1},"quantity":1,"shipDate":"2026-10-07T03:51:47Z","complete":false}}\n'
    return "".join(template.format(order_id, order_id % 977) for order_id in range(1, number + 1))


@contextmanager
def nginx(folder: Path, port: int = 18_099) -> Iterator[str]:
    folder.chmod(0o755)
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=port))
    command = ["taskset", "-c", SERVER_CORE, "nginx", "-c", str(config), "-p", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def rate(url: str, seconds: int, *headers: str, connections: int = 16) -> float:
    """Requests a second that wrk gets answered."""
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", url]
    shown = subprocess.run(
        [*command, *[part for header in headers for part in ("-H", header)]], capture_output=True, text=True, check=True
    ).stdout
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", shown)
    if refused:
        raise SystemExit(f"{url}: {refused[1]} answers were refusals")
    found = re.search(r"Requests/sec:\s+([\d.]+)", shown)
    if found is None:
        raise SystemExit(shown)
    return float(found[1])


def cpu_seconds(server: Server) -> float:
    """Seconds of processor time the serving process has used."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lists(folder: Path, number: int, rounds: int, seconds: int) -> None:
    store = folder / f"{number}.db"
    petstore(store, "orders", "import", "-", "--format", "jsonl", text=order_lines(number))
    key, _ = new_key(store, plan=UNLIMITED)
    authorised = f"Authorization: Bearer {key}"
    with serving(store) as server, nginx(folder) as reference:
        subprocess.run(["taskset", "-acp", SERVER_CORE, str(server.process.pid)], capture_output=True, check=True)
        with server.client(key) as client:
            answer = client.get(TARGET, headers={"Accept-Encoding": "identity"})
        (folder / "list").write_bytes(answer.content)
        unchanged = f"If-None-Match: {answer.headers['etag']}"
        ours, theirs, same, cost = [], [], [], []
        for _ in range(rounds):
            theirs.append(rate(f"{reference}/list", seconds))
            began = cpu_seconds(server)
            ours.append(rate(server.api + TARGET, seconds, authorised))
            cost.append((cpu_seconds(server) - began) / (ours[-1] * seconds) * 1e6)
            same.append(rate(server.api + TARGET, seconds, authorised, unchanged))
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        print(
            f"list of {number:>7,} orders ({len(answer.content):>10,} bytes): {statistics.median(ours):>8,.0f}/s, "
            f"{statistics.median(cost):>8,.1f} µs of processor each, {statistics.median(ratios):.2f} of nginx "
            f"({min(ratios):.2f}–{max(ratios):.2f}); unchanged (304): {statistics.median(same):>8,.0f}/s; "
            f"{server.memory() / 2**20:.0f} MiB resident",
            flush=True,
        )


def cancels(folder: Path, rounds: int) -> None:
    per_round = 20_000
    store = folder / "cancels.db"
    petstore(store, "orders", "import", "-", "--format", "jsonl", text=order_lines(per_round * rounds))
    key, _ = new_key(store, plan=UNLIMITED)
    rates, cost = [], []
    with serving(store) as server:
        subprocess.run(["taskset", "-acp", SERVER_CORE, str(server.process.pid)], capture_output=True, check=True)
        os.sched_setaffinity(0, {int(LOAD_CORE)})
        for number in range(rounds):
            first = number * per_round + 1
            targets = [("DELETE", f"{TARGET}/{order_id}") for order_id in range(first, first + per_round)]
            began, used = time.perf_counter(), cpu_seconds(server)
            replies = asyncio.run(send_all(server.port, key, targets, connections=32, check=False))
            took = time.perf_counter() - began
            if {204} != {reply.status for reply in replies}:
                raise SystemExit("a cancel was refused")
            rates.append(per_round / took)
            cost.append((cpu_seconds(server) - used) / per_round * 1e6)
    print(
        f"durable cancel, 32 connections: {statistics.median(rates):,.0f}/s ({min(rates):,.0f}–{max(rates):,.0f}; "
        f"the Python load takes the other core whole), {statistics.median(cost):.1f} µs of processor each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in SIZES:
            lists(folder, number, arguments.rounds, arguments.seconds)
        cancels(folder, arguments.rounds)


if __name__ == "__main__":
    main()
