"""What the pages of the console read and change: the store, the running service, the files on their way into it."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.core import Metric

from petstore_server.console.import_jobs import ImportJobs
from petstore_server.console.readings import Cached, Pace
from petstore_server.console.sessions import Sessions
from petstore_server.console.statistics import Statistics
from petstore_server.console.submissions import Submissions
from petstore_server.domain.usage import Usage
from petstore_server.operations.health import CheckResult
from petstore_server.settings import Settings
from petstore_server.store import Store
from petstore_server.telemetry.metrics import RecentRequests

_CHECKS_SECONDS = 60.0
_UNDER_WAY = Pace(missing=0.02)  # no page waits for the checks, which may take seconds


class Service(Protocol):
    """The service on this host: one process, or a supervisor with its workers."""

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        """What /readyz says: whether the service is ready, and the body."""

    async def collect(self) -> list[Metric]:
        """The metrics of all its processes."""


@dataclass
class Sources:
    """Everything that pages call.

    `clock` gives Unix seconds. `is_sample` means that the store has sample data; `sign_in_command` prints a link.
    """

    settings: Settings
    store: Store
    service: Service
    examine: Callable[[], Awaitable[list[CheckResult]]]
    usage_of: Callable[[int], Coroutine[Any, Any, Usage]]
    all_usage: Callable[[], Awaitable[Mapping[int, Usage]]]
    clock: Callable[[], float]
    pace: Pace = field(default_factory=Pace)
    is_sample: bool = False
    sign_in_command: str = "petstore console"
    requests: RecentRequests = field(init=False)
    statistics: Statistics = field(init=False)
    checks: Cached[list[CheckResult]] = field(init=False)
    imports: ImportJobs = field(init=False)
    sessions: Sessions = field(init=False)
    submissions: Submissions = field(init=False, default_factory=Submissions)

    def __post_init__(self) -> None:
        self.requests = RecentRequests(self.service.collect, self.clock)
        self.statistics = Statistics(self.store, self.all_usage, self.clock, self.pace)
        self.checks = Cached(self.examine, _UNDER_WAY, _CHECKS_SECONDS)
        self.sessions = Sessions(self.store)
        self.imports = ImportJobs(self.settings.database_url, self.clock)

    async def close(self) -> None:
        """Stop what runs behind the pages."""
        await self.imports.close()
        await self.statistics.close()
        await self.checks.close()
