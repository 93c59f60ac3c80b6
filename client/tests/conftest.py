import pytest

from flavours import Connect, awaited, blocking


@pytest.fixture(params=[blocking, awaited], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes a client of a fake service: once the blocking one, once the asynchronous one."""
    made: Connect = request.param
    return made
