"""A pytest fixture. Import it in conftest.py: `from petstore_client.testing.pytest_plugin import fake_petstore`."""

from collections.abc import Iterator

import pytest

from petstore_client.testing.service import FakePetstore


@pytest.fixture
def fake_petstore() -> Iterator[FakePetstore]:
    """A service in memory that serves all clients which the program makes during the test (`FakePetstore.installed`).

    Put orders into `fake_petstore.orders`, by id. At the end, unused faults fail the test.
    """
    with FakePetstore().installed() as fake:
        yield fake
