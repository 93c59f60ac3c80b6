"""The limit headers: `t` counts down to a whole second, and never promises an earlier one (D13)."""

import pytest

from petstore_server.api.headers import limit_headers
from petstore_server.domain.accounts import Limits
from petstore_server.domain.windows import Count, evaluate_account, evaluate_address

START = 1_793_000_000


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.75])
def test_t_is_the_time_to_the_reset_rounded_up(fraction: float) -> None:
    now = START + 1 + fraction
    headers = limit_headers(evaluate_address(True, Count(START, 1), now))
    assert b'ratelimit: "address";r=59;t=59\r\n' in headers
    headers = limit_headers(evaluate_account(True, Count(START, 1), Count(START, 1), Limits(60, 1000), now))
    assert b'ratelimit: "minute";r=59;t=59, "day";r=999;t=86399\r\n' in headers
