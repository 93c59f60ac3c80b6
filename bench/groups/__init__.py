"""The groups of benchmarks, in the order in which they run and are reported.

A group is a module with `measure(plan)`, which returns the rows that it measured. To add one, write the module
and name it in `GROUPS`; the report has a section for each group, and `bench/results.md` a place for it.
"""

from collections.abc import Callable
from typing import NamedTuple

from bench.groups import (
    alternatives,
    cancels,
    changes,
    client,
    engines,
    imports,
    imports_under_load,
    keys,
    limits,
    lists,
    orders,
    own,
    pages,
    peer_in_go,
    shop,
    startup,
    telemetry,
    webhooks,
    workers,
)
from bench.plan import Plan
from bench.results import Row


class Section(NamedTuple):
    """A group's heading in the report, the programs that it needs, and what carries it out."""

    title: str
    programs: tuple[str, ...]
    measure: Callable[[Plan], list[Row]]


GROUPS = {
    "lists": Section("Lists", ("nginx", "wrk"), lists.measure),
    "changes": Section("Lists after a change", (), changes.measure),
    "cancels": Section("Cancels", ("nginx", "wrk"), cancels.measure),
    "orders": Section("Single and placed orders", ("wrk",), orders.measure),
    "pages": Section("Pages of version 2", (), pages.measure),
    "own": Section("Own orders", ("wrk",), own.measure),
    "shop": Section("The shop's own systems", ("wrk",), shop.measure),
    "imports": Section("Imports", (), imports.measure),
    "imports_under_load": Section("Imports into the store of a busy server", ("wrk",), imports_under_load.measure),
    "alternatives": Section("Other services", ("wrk",), alternatives.measure),
    "peer_in_go": Section("A peer in Go", ("wrk", "go"), peer_in_go.measure),
    "limits": Section("Limits in Redis", ("wrk", "redis-benchmark"), limits.measure),
    "engines": Section("Processor time on PostgreSQL and Redis", ("wrk",), engines.measure),
    "workers": Section("Workers", ("wrk",), workers.measure),
    "telemetry": Section("Logging and usage history", ("wrk",), telemetry.measure),
    "webhooks": Section("Webhooks", ("wrk",), webhooks.measure),
    "startup": Section("Start", (), startup.measure),
    "client": Section("Client", (), client.measure),
    "keys": Section("API keys in turn", ("wrk",), keys.measure),
}
