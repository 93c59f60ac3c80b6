import pytest

from support.variants import Connect, asynchronous, blocking


@pytest.fixture(params=[blocking, asynchronous], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes a client of a fake service: once the blocking variant, once the asynchronous one."""
    made: Connect = request.param
    return made


@pytest.fixture
def anyio_backend() -> str:
    """Runs asynchronous tests on asyncio, the only event loop that the client supports."""
    return "asyncio"
