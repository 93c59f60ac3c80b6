"""The queries of the shipped dashboard, in a Prometheus that scrapes a server with the shipped configuration."""

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from testing.documents import ROOT
from testing.process import UNLIMITED, new_key, petstore, put_orders, serving
from testing.prometheus import ask, prometheus
from testing.subprocesses import PATIENCE, within
from testing.threaded_receiver import receiving
from testing.webhook_messages import SETTINGS

pytestmark = pytest.mark.system

PANELS = json.loads((ROOT / "deploy" / "grafana" / "petstore.json").read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
ZERO = re.compile(
    r"limits_degraded|500\|503|log_lines_lost|(refused|shed)_total|decisions_local|counts_lost|held_requests|workers?"
    r"|postgresql|start_timestamp|clock_ahead|webhook_lag"
)
"""Queries that show zero while nothing is wrong."""
LISTS, PAGES = "/v1/store/orders", "/v2/store/orders"
BANS = {"PETSTORE_BAN_GRACE_SECONDS": "0", "PETSTORE_BAN_STRIKES": "2"}
BANS |= {"PETSTORE_BAN_SECONDS": "1", "PETSTORE_BAN_MAX_SECONDS": "1"}


def shows(prometheus: httpx2.Client, query: str) -> bool:
    """Whether the query has the values that its panel should have."""
    query = query.replace("$instance", ".*").replace("$__rate_interval", "10s")
    found = ask(prometheus, "query", query=query)
    values = [float(series["value"][1]) for series in found["result"]]
    return values != [] and (max(values) > 0 or bool(ZERO.search(query)))


def test_every_panel_of_the_dashboard_shows_what_the_server_did(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    put_orders(store, 1_000)
    key, _ = new_key(store, "acme", UNLIMITED)
    limited_key, _ = new_key(store, "hasty", ("--plan", "enterprise", "--per-minute", "1", "--per-day", "9"))
    assert 0 == petstore(store, "db", "backup", str(tmp_path / "backup.db")).returncode
    with receiving() as receiver, ExitStack() as running:
        created = petstore(store, "webhooks", "create", "acme", receiver.url, **SETTINGS)
        assert 0 == created.returncode, created.stderr
        server = running.enter_context(serving(store, **BANS, **SETTINGS))
        client, hasty = (running.enter_context(server.client(each)) for each in (key, limited_key))
        target = server.admin.removeprefix("http://")
        with prometheus(target, tmp_path) as asked:
            within(PATIENCE, lambda: ask(asked, "label/instance/values", **{"match[]": "petstore_ready"}) == [target])
            missing, number = QUERIES, 0
            deadline = time.monotonic() + PATIENCE
            while missing := [query for query in missing if not shows(asked, query)]:
                assert time.monotonic() < deadline, "\n".join(missing)
                number += 1
                tag = client.get(LISTS).headers["ETag"]
                assert 304 == client.get(LISTS, headers={"If-None-Match": tag}).status_code
                assert 200 == client.get(PAGES).status_code
                assert 204 == client.delete(f"{LISTS}/{number}").status_code
                assert {200, 429} >= {hasty.get(LISTS).status_code for _ in range(5)}
                time.sleep(0.2)
