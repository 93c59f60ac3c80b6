"""A pytest fixture. Import it in conftest.py: `from petstore_client.testing.pytest_plugin import fake_petstore`."""

from collections.abc import Iterator

import pytest

from petstore_client.testing.service import FakePetstore


@pytest.fixture
def fake_petstore() -> Iterator[FakePetstore]:
    """A service in memory for all clients that the test makes, with `orders` by id. Unused faults fail the test."""
    with FakePetstore().installed() as fake:
        yield fake
