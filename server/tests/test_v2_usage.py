"""getUsage: the windows of this very request, and the history (D20)."""

from pathlib import Path

import httpx2
import pytest

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import Scope
from support.service import Service, bearer, in_service

USAGE = "/v2/usage"

pytestmark = pytest.mark.usefixtures("each_engine")


def test_the_windows_are_those_of_the_limit_headers_with_this_request_charged(tmp_path: Path) -> None:
    async def story(service: Service) -> None:
        key = await service.key(await service.account(Plan.FREE), scopes=frozenset({Scope.PETS_READ}))
        for used in (1, 2):
            response = await service.client.get(USAGE, headers=bearer(key))
            usage = response.json()
            assert ("free", ["minute", "day"]) == (usage["plan"], [window["name"] for window in usage["windows"]])
            assert [(60, 60 - used), (1000, 1000 - used)] == [
                (window["limit"], window["remaining"]) for window in usage["windows"]
            ]
            assert int(response.headers["x-ratelimit-reset"]) == usage["windows"][0]["reset"]
        assert 405 == (await service.client.post(USAGE, headers=bearer(key))).status_code
        assert 200 == (await service.client.head(USAGE, headers=bearer(key))).status_code

    in_service(tmp_path, story)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("granularity=day", 200),
        ("from=2026-10-26T00:00:00Z", 200),
        ("to=2026-10-01T00:00:00Z", 200),
        ("from=2026-10-01T00:00:00Z&to=2026-10-01T00:00:00Z", 200),
        ("from=2026-01-01T00:00:00Z", 400),
        ("from=2026-01-01T00:00:00Z&granularity=day", 200),
        ("from=2020-01-01T00:00:00Z&granularity=day", 400),
        ("from=0001-01-01T00:00:00Z&to=9999-12-31T00:00:00Z&granularity=day", 400),
        ("to=0001-01-01T00:00:00Z", 200),
        ("from=9999-12-31T23:59:59Z", 400),
        ("from=2026-10-02T00:00:00Z&to=2026-10-01T00:00:00Z", 400),
        ("granularity=minute", 400),
    ],
)
def test_a_range_of_at_most_a_thousand_entries_is_served(tmp_path: Path, query: str, status: int) -> None:
    async def story(service: Service) -> httpx2.Response:
        key = await service.key(await service.account(Plan.ENTERPRISE, Limits(1000, 1000)))
        return await service.client.get(f"{USAGE}?{query}", headers=bearer(key))

    response = in_service(tmp_path, story)
    assert status == response.status_code
    if status == 400:
        assert "invalid_parameter" == response.json()["code"]
