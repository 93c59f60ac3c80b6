"""What the console's pages need of the running service."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from petstore_server.console.cache import Cached
from petstore_server.console.import_jobs import ImportJobs
from petstore_server.console.statistics import Statistics
from petstore_server.domain.usage import Usage
from petstore_server.operations.health.examine import Installation, examine
from petstore_server.operations.health.results import CheckResult
from petstore_server.settings import Settings
from petstore_server.store import Store
from petstore_server.telemetry.recent import RecentRequests

_CHECKS_SECONDS = 60.0


@dataclass
class Services:
    """Everything that pages call.

    `readiness` returns what /readyz says, as (ready, body). `usages` reads the usage of all accounts by their ids, of
    which those without any may be missing; `usage_of` that of one. `clock` gives Unix seconds, `random_token` a random
    text made of that many bytes, `random_below` uniform random integers below n. `is_sample` means that the store has
    sample data.
    """

    settings: Settings
    store: Store
    installation: Installation
    readiness: Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]
    requests: RecentRequests
    usages: Callable[[], Awaitable[Mapping[int, Usage]]]
    usage_of: Callable[[int], Awaitable[Usage]]
    clock: Callable[[], float]
    random_token: Callable[[int], str]
    random_below: Callable[[int], int]
    is_sample: bool = False
    statistics: Statistics = field(init=False)
    checks: Cached[list[CheckResult]] = field(init=False)
    imports: ImportJobs = field(init=False)

    def __post_init__(self) -> None:
        self.statistics = Statistics(self.store, self.usages, self.clock)
        self.checks = Cached(self._examine, _CHECKS_SECONDS)
        self.imports = ImportJobs(self.settings.database_url, self.clock)

    async def _examine(self) -> list[CheckResult]:
        return [result async for result in examine(self.installation, self.clock())]

    async def close(self) -> None:
        """Stop what runs behind the pages."""
        await self.imports.close()
        await self.statistics.close()
        await self.checks.close()
